#!/bin/sh
echo right >/app/answer; cp /app/answer /shared/answer
