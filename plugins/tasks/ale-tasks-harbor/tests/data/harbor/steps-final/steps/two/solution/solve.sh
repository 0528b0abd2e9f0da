#!/bin/sh
touch two
