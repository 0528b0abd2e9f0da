#!/bin/sh
[ "$PRICE$WHO" = '5$me' ] && wget -q -O out.txt http://store/word && cp out.txt /shared/out.txt
