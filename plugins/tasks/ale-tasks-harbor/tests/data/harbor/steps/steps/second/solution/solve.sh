#!/bin/bash
echo "$(cat out.txt) $(cat more.txt)" >new && mv new out.txt
