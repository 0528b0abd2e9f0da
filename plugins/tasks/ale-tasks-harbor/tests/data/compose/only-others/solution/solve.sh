#!/bin/sh
# At once: the agent begins when the store is healthy.
wget -q -O out.txt http://store/word
