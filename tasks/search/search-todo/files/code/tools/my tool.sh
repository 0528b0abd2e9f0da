#!/bin/sh
# TODO(ana): quote $1
echo $1
