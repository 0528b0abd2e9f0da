#!/bin/sh
mkdir www && echo hi >www/word && httpd -p 8080 -h www
