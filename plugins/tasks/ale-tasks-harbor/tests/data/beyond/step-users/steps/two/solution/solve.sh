#!/bin/sh
id -u >/tmp/two
