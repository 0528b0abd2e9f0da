#!/bin/sh
touch one
