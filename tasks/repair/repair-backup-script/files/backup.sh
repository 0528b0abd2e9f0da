#!/bin/sh
# Copy the files of a folder: backup.sh SOURCE TARGET

mkdir $2
count=0
for file in `ls $1`; do
  cp $1/$file $2 2>/dev/null
  count=`expr $count + 1`
done
echo copied $count
