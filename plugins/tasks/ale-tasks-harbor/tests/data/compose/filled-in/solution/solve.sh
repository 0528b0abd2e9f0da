#!/bin/sh
cat /built /shared/words >out.txt
