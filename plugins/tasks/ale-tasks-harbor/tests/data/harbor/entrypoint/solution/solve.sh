#!/bin/sh
wget -q -O out.txt http://127.0.0.1:8080/word
