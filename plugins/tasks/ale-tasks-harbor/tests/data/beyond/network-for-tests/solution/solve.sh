#!/bin/sh
ls /sys/class/net >nets
