#!/bin/sh
[ "$(id -un)" = worker ] || exit 1
touch /app/file 2>/dev/null && exit 1
wget -q -O out.txt http://127.0.0.1/served
