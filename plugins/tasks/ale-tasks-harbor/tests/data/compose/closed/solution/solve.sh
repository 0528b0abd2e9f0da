#!/bin/sh
while ! wget -q -O out.txt http://store/word; do sleep 0.2; done
