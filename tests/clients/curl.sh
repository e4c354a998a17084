#!/usr/bin/env bash
# Sends requests with curl, with headers that clients and proxies send: each line has an expected status.
set -euo pipefail
url=$1
body='{"model": "target", "prompt": "def f(", "max_tokens": 4}'
failed=0
expect() {
    local wanted=$1 found
    shift
    found=$(curl -s -o /dev/null -w '%{http_code}' --max-time 60 "$@")
    if [ "$found" != "$wanted" ]; then
        echo "$found instead of $wanted: $*"
        failed=1
    fi
}
post=("$url/v1/completions" -d "$body")
expect 200 "${post[@]}" -H 'Content-Type: application/json'
expect 200 "${post[@]}" -H 'Content-Type: application/json; charset=UTF-8' -H 'Accept: text/event-stream, */*;q=0.1'
expect 200 "${post[@]}" -H 'Content-Type:' -H 'Expect: 100-continue'
expect 200 "${post[@]}" -H 'Content-Type: application/json' -H 'Transfer-Encoding: chunked'
expect 200 "${post[@]}" -H 'Content-Type: application/json' -H 'X-Request-Id: a' -H 'X-Forwarded-For: 10.0.0.1' -H 'Authorization: Bearer any'
expect 200 "${post[@]}" -H 'Content-Type: application/json' --http1.0
expect 200 "${post[@]}" -H 'Content-Type: application/json' -H 'Connection: close' -H 'Accept-Encoding: gzip, br'
expect 415 "${post[@]}"
expect 400 "$url/v1/completions" -H 'Content-Type: application/json' -d '{'
expect 405 "$url/v1/completions" -X PUT
expect 404 "$url/v1/nothing"
expect 200 "$url/v1/models"
expect 200 "$url/health" -I
expect 204 "$url/v1/completions" -X OPTIONS -H 'Origin: http://localhost:5173' -H 'Access-Control-Request-Method: POST'
head -c 9000000 /dev/zero | tr '\0' ' ' | expect 413 "$url/v1/completions" -H 'Content-Type: application/json' --data-binary @-
exit $failed
