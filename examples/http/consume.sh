#!/bin/sh
# Prints messages on time, for ever:  consume.sh TOPIC
#
# Needs curl and sed. One delivery at a time: wait for it, print it, acknowledge it. A message is printed again if this ends
# between the two, or if the acknowledgement gets lost: delivery is at least once.
set -u

api=${API:-http://127.0.0.1:7453}
deliveries=$api/v1/topics/$1/deliveries

post() { # URL BODY
  curl --silent --show-error --fail --header 'content-type: application/json' --data "$2" "$1"
}

field() { # NAME, of the JSON on standard input, where its value is text without quotes in it
  sed -n "s/.*\"$1\":\"\\([^\"]*\\)\".*/\\1/p"
}

while :; do
  if ! answer=$(post "$deliveries:receive" '{"wait_sec": 20, "visibility_sec": 30}'); then
    sleep 1 # the relay or its Redis is away
    continue
  fi
  token=$(printf '%s' "$answer" | field token)
  [ -n "$token" ] || continue # nothing fell due
  printf '%s\n' "$(printf '%s' "$answer" | field message)"
  post "$deliveries:settle" "{\"settlements\": [{\"token\": \"$token\", \"outcome\": \"ack\"}]}" >/dev/null ||
    echo "not acknowledged; it will come again" >&2
done
