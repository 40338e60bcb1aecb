#!/bin/sh
# A worker for one shard: says what it runs, and works until it is told to stop.
trap 'echo "stopping"; exit 0' TERM
echo "working on shard $LEASEHOLD_SHARD with epoch $LEASEHOLD_EPOCH"
while :; do
  sleep 1 &
  wait $!
done
