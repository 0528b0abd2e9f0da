#!/bin/sh
id -u >/tmp/one
