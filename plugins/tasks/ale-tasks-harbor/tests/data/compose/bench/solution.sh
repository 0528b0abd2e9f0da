#!/bin/sh
while ! wget -q -O out.txt http://api/word; do sleep 0.2; done
