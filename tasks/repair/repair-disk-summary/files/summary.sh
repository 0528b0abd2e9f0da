#!/bin/sh
# Sum up lines of "name size" from standard input.

files=0
bytes=0
max=0
cat | while read name size; do
  ((files++))
  bytes=$((bytes + size))
  if [[ $size > $max ]]; then
    max=$size
    largest=$name
  fi
done
echo "files $files"
echo "bytes $bytes"
echo "largest $largest"
