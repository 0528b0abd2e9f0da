#!/bin/sh
echo begun
while :; do sleep 1; done
