#!/bin/sh
# An acquire gate for `leasehold run` that asks a Kafka consumer group (docs/hooks.md).
#
# Leasehold asks before it takes shard N, and N is a partition of the topic. The shard is taken unless
# - a member of the consumer group still consumes that partition (the old consumers are not done with it), or
# - the partition's lag is above LAG_MAX (this node could not catch up), or
# - the consumer group has more than MEMBERS_MAX members (the broker would rebalance too often).
#
# Exit codes: 0 take it, 1 refuse it, 2 Kafka could not be asked (which also refuses it).
set -u
: "${KAFKA_BOOTSTRAP:?host:port of a broker}" "${KAFKA_CONSUMER_GROUP:?name of the consumer group}"
: "${KAFKA_TOPIC:=$LEASEHOLD_GROUP}" "${LAG_MAX:=100000}" "${MEMBERS_MAX:=200}"
: "${KAFKA_CONSUMER_GROUPS:=kafka-consumer-groups.sh}"

# Columns: GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
if ! described=$("$KAFKA_CONSUMER_GROUPS" --bootstrap-server "$KAFKA_BOOTSTRAP" --describe \
    --group "$KAFKA_CONSUMER_GROUP" 2>&1); then
    printf 'Kafka does not answer: %s\n' "$(printf '%s' "$described" | tail -n 1)"
    exit 2
fi
printf '%s\n' "$described" | awk -v topic="$KAFKA_TOPIC" -v partition="$LEASEHOLD_SHARD" \
    -v lag_max="$LAG_MAX" -v members_max="$MEMBERS_MAX" '
    $7 != "" && $7 != "-" && $7 != "CONSUMER-ID" && !seen[$7]++ { members++ }
    $2 == topic && $3 == partition { found = 1; lag = $6; member = $7 }
    END {
        if (members > members_max) { print members " members are more than " members_max; exit 1 }
        if (!found) { exit 0 } # nobody has consumed it yet
        if (member != "-" && member != "") { print "still consumed by " member; exit 1 }
        if (lag ~ /^[0-9]+$/ && lag + 0 > lag_max) { print "its lag of " lag " is above " lag_max; exit 1 }
    }'
