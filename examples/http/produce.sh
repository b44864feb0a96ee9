#!/bin/sh
# Schedules messages that are to be printed on time:  produce.sh TOPIC SECONDS TEXT [SECONDS TEXT …]
#
# Needs curl alone. API says where the relay's API is. With an id of its own a repeated call changes nothing
# more, so curl may try again; --fail-with-body makes a refusal an error, and shows what is wrong. The text may hold
# anything but quotes and backslashes, which JSON wants escaped. Each try has 5 seconds, and the relay knows it: a try
# that curl has given up has no effect any more when the next one begins.
set -eu

api=${API:-http://127.0.0.1:7453}
topic=$1
shift
number=0
while [ $# -ge 2 ]; do
  number=$((number + 1))
  curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused \
    --max-time 5 --header 'Relay-Timeout: 5' \
    --request PUT --header 'content-type: application/json' \
    --data "{\"message\": \"$2\", \"delay_sec\": $1}" \
    "$api/v1/topics/$topic/timers/$(date +%s)-$$-$number"
  echo
  shift 2
done
