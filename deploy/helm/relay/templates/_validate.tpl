{{/* What values.schema.json can't say: values that contradict each other. The daemon would refuse most of them too, but
     only in the cluster. */}}

{{- define "relay.validate" -}}
{{- include "relay.validate.life" . -}}
{{- include "relay.validate.redis" . -}}
{{- include "relay.validate.topics" . -}}
{{- include "relay.validate.extras" . -}}
{{- include "relay.validate.pipeline" . -}}
{{- include "relay.validate.trust" . -}}
{{- if eq .Values.mode "standalone" -}}
{{- include "relay.validate.standalone" . -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.life" -}}
{{- $drain := dig "drain_timeout" 20 .Values.config -}}
{{- if ge (float64 $drain) (float64 .Values.terminationGracePeriodSeconds) -}}
{{- fail (printf "config.drain_timeout: must be less than terminationGracePeriodSeconds, or the relay is killed while it drains; got %s over %s seconds" (toJson $drain) (toJson .Values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- $start := dig "redis" "start_timeout" 3 .Values.config -}}
{{- $probed := mul .Values.probes.startup.periodSeconds .Values.probes.startup.failureThreshold -}}
{{- if ge (float64 $start) (float64 $probed) -}}
{{- fail (printf "config.redis.start_timeout: must be less than probes.startup allows (periodSeconds × failureThreshold), or the relay is killed while it waits; got %s over %s seconds" (toJson $start) (toJson $probed)) -}}
{{- end -}}
{{- if and (eq (int .Values.grpc.port) (int .Values.http.port)) (not .Values.grpc.socket.enabled) -}}
{{- fail (printf "http.port: must differ from grpc.port, both are %v" .Values.http.port) -}}
{{- end -}}
{{- if .Values.outbox.database.existingSecret -}}
{{- $taken := ternary (list .Values.http.port) (list .Values.http.port .Values.grpc.port) .Values.grpc.socket.enabled -}}
{{- range $port := $taken -}}
{{- if eq (int $.Values.outbox.metricsPort) (int $port) -}}
{{- fail (printf "outbox.metricsPort: must differ from http.port and grpc.port, and %v is taken" $port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") (eq .Values.sidecar.kind "native") (semverCompare "<1.29.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "sidecar.kind: native needs Kubernetes 1.29 or newer, and this is %s; set classic, and include relay.sidecar under containers" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.redis" -}}
{{- $redis := .Values.redis -}}
{{- $secret := $redis.existingSecret -}}
{{- if regexMatch "://[^@]*:[^@]*@|password=" $redis.url -}}
{{- fail "redis.url: holds a password; put it into a Secret, and name that in redis.existingSecret" -}}
{{- end -}}
{{- range $field := list "urlKey" "passwordKey" "usernameKey" "sentinelPasswordKey" -}}
{{- if and (get $secret $field) (not $secret.name) -}}
{{- fail (printf "redis.existingSecret.%s: goes with redis.existingSecret.name, which is empty" $field) -}}
{{- end -}}
{{- end -}}
{{- if and $secret.name (not (or $secret.urlKey $secret.passwordKey $secret.usernameKey $secret.sentinelPasswordKey)) -}}
{{- fail "redis.existingSecret.name: goes with the name of a key in it: urlKey, passwordKey, usernameKey or sentinelPasswordKey" -}}
{{- end -}}
{{- if and $redis.username $secret.usernameKey -}}
{{- fail "redis.username: is in redis.existingSecret.usernameKey already; give it in one place" -}}
{{- end -}}
{{- if and $redis.username (not $secret.passwordKey) -}}
{{- fail "redis.username: goes with redis.existingSecret.passwordKey" -}}
{{- end -}}
{{- if and $redis.sentinel.master (not $redis.sentinel.hosts) -}}
{{- fail "redis.sentinel.hosts: names no Sentinel, and redis.sentinel.master wants them asked" -}}
{{- end -}}
{{- if and $redis.sentinel.hosts (not $redis.sentinel.master) -}}
{{- fail "redis.sentinel.master: is empty, and redis.sentinel.hosts names Sentinels to ask for it" -}}
{{- end -}}
{{- if and $redis.sentinel.master $secret.urlKey -}}
{{- fail "redis.sentinel.master: is not asked for, since redis.existingSecret.urlKey has the whole URL; give one of the two" -}}
{{- end -}}
{{- if and $redis.cluster.hosts (or $redis.sentinel.master $secret.urlKey) -}}
{{- fail "redis.cluster.hosts: are not asked, since redis.sentinel.master or redis.existingSecret.urlKey says where Redis is; give one of them" -}}
{{- end -}}
{{- if and $redis.tls.enabled (not $redis.sentinel.master) (not $redis.cluster.hosts) -}}
{{- fail "redis.tls.enabled: goes with redis.sentinel or redis.cluster; without them only a URL that begins with rediss encrypts" -}}
{{- end -}}
{{- $url := include "relay.redisUrl" . -}}
{{- if and $secret.sentinelPasswordKey (not $secret.urlKey) (not (contains "+sentinel://" $url)) -}}
{{- fail "redis.existingSecret.sentinelPasswordKey: goes with Sentinels: redis.sentinel, or a URL with redis+sentinel://" -}}
{{- end -}}
{{- if and $redis.tls.existingSecret (not $secret.urlKey) (not (hasPrefix "rediss" $url)) -}}
{{- fail "redis.tls.existingSecret: goes with a URL that begins with rediss:// (with redis.sentinel or redis.cluster: redis.tls.enabled)" -}}
{{- end -}}
{{- if and $redis.tls.certKey (not $redis.tls.existingSecret) -}}
{{- fail "redis.tls.certKey: goes with redis.tls.existingSecret, which is empty" -}}
{{- end -}}
{{- if ne (empty $redis.tls.certKey) (empty $redis.tls.keyKey) -}}
{{- fail "redis.tls.certKey: goes with redis.tls.keyKey, and the other way round" -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.topics" -}}
{{- $defaults := .Values.config.defaults | default dict -}}
{{- if eq (dig "delivery" "mode" "stream" $defaults) "push" -}}
{{- fail "config.defaults.delivery.mode: must be stream: name each pushed topic in config.topics" -}}
{{- end -}}
{{- $room := sub (dig "grpc" "max_message_bytes" 16777216 .Values.config | int64) 131072 -}}
{{- include "relay.validate.policy" (dict "path" "config.defaults" "policy" $defaults "room" $room) -}}
{{- range $topic, $own := .Values.config.topics -}}
{{- $policy := mergeOverwrite (deepCopy $defaults) (deepCopy $own) -}}
{{- include "relay.validate.policy" (dict "path" (printf "config.topics.%s" $topic) "policy" $policy "room" $room) -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.policy" -}}
{{- $policy := .policy -}}
{{- $polling := $policy.polling_interval | default 0.05 -}}
{{- $most := $policy.max_polling_interval | default 5 -}}
{{- if gt (float64 $polling) (float64 $most) -}}
{{- fail (printf "%s.polling_interval: must be at most max_polling_interval, got %s over %s seconds" .path (toJson $polling) (toJson $most)) -}}
{{- end -}}
{{- $lease := $policy.lease_ttl | default 30 -}}
{{- $silence := $policy.delivery_timeout | default 600 -}}
{{- if and (dig "renew" true $policy) (gt (float64 $lease) (float64 $silence)) -}}
{{- fail (printf "%s.lease_ttl: must be at most delivery_timeout while renew is on, got %s over %s seconds" .path (toJson $lease) (toJson $silence)) -}}
{{- end -}}
{{- $mode := dig "delivery" "mode" "stream" $policy -}}
{{- $target := dig "delivery" "target" "" $policy -}}
{{- if and (eq $mode "push") (not $target) -}}
{{- fail (printf "%s.delivery.target: must say whom to dial, as in 127.0.0.1:50051, since delivery.mode is push" .path) -}}
{{- end -}}
{{- if and (ne $mode "push") $target -}}
{{- fail (printf "%s.delivery.target: has no effect while delivery.mode is %s; set it to push" .path $mode) -}}
{{- end -}}
{{- $bytes := dig "max_payload_bytes" 1048576 $policy -}}
{{- if gt (int64 $bytes) (int64 .room) -}}
{{- fail (printf "%s.max_payload_bytes: must be at most %s, which is config.grpc.max_message_bytes less 131072 for headers, got %s" .path (toJson .room) (toJson $bytes)) -}}
{{- end -}}
{{- end }}

{{/* What is sent where, and what is added, which takes the place of nothing that the chart makes. */}}
{{- define "relay.validate.extras" -}}
{{- $telemetry := .Values.telemetry -}}
{{- if and $telemetry.endpoint (eq $telemetry.protocol "http/protobuf") (not (regexMatch "^https?://" $telemetry.endpoint)) -}}
{{- fail (printf "telemetry.endpoint: must begin with http:// or https:// while telemetry.protocol is http/protobuf, got %s" $telemetry.endpoint) -}}
{{- end -}}
{{- range $variable := .Values.extraEnv -}}
{{- if and (hasPrefix "RELAY_" $variable.name) (not $variable.valueFrom) -}}
{{- fail (printf "extraEnv: %s is a setting; it belongs into config, or into the value that the chart makes it from" $variable.name) -}}
{{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $variable := include "relay.env" . | fromYamlArray -}}
{{- if hasKey $seen $variable.name -}}
{{- fail (printf "extraEnv: %s is set by another value already (telemetry and redis set variables, too)" $variable.name) -}}
{{- end -}}
{{- $_ := set $seen $variable.name true -}}
{{- end -}}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" "relay-instance" -}}
{{- range $path, $labels := dict "commonLabels" .Values.commonLabels "standalone.podLabels" .Values.standalone.podLabels -}}
{{- range $label := $own -}}
{{- if hasKey ($labels | default dict) $label -}}
{{- fail (printf "%s: %s is the chart's own label, by which pods are found" $path $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.pipeline" -}}
{{- if .Values.pipeline.enabled -}}
{{- if not .Values.pipeline.jobs -}}
{{- fail "pipeline.jobs: names no job, and pipeline.enabled wants them run; as in sweep: {schedule: \"17 * * * *\", args: [sweep, --horizon, 2h]}" -}}
{{- end -}}
{{- range $name, $_ := .Values.pipeline.jobs -}}
{{- $whole := printf "%s-%s" (include "relay.fullname" $) $name -}}
{{- if gt (len $whole) 52 -}}
{{- fail (printf "pipeline.jobs.%s: the CronJob's name would be %s, and Kubernetes allows 52 characters; shorten it, or set fullnameOverride" $name $whole) -}}
{{- end -}}
{{- end -}}
{{- $seen := dict "RELAY_CONFIG" true -}}
{{- range $variable := include "relay.env" . | fromYamlArray -}}
{{- $_ := set $seen $variable.name true -}}
{{- end -}}
{{- range $variable := .Values.pipeline.extraEnv -}}
{{- if hasKey $seen $variable.name -}}
{{- fail (printf "pipeline.extraEnv: %s is set by another value already" $variable.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "relay.validate.standalone" -}}
{{- $delivers := .Values.standalone.grpc.expose -}}
{{- range $topic, $policy := .Values.config.topics -}}
{{- if eq (dig "delivery" "mode" "stream" $policy) "push" -}}
{{- $delivers = true -}}
{{- if regexMatch "^(unix:|127\\.|localhost:|\\[::1\\])" $policy.delivery.target -}}
{{- fail (printf "config.topics.%s.delivery.target: %s is within the relay's own pod; in standalone mode name a Service, as in shop.default.svc:50051" $topic $policy.delivery.target) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $delivers -}}
{{- fail "config.topics: a standalone relay delivers nothing unless a topic is pushed (delivery: {mode: push, target: …}) or standalone.grpc.expose lets applications open streams" -}}
{{- end -}}
{{- if and .Values.standalone.grpc.expose (not .Values.standalone.networkPolicy.enabled) (not (include "relay.tlsSecret" .)) -}}
{{- fail "standalone.grpc.expose: without tls the API asks for no credentials; it needs standalone.networkPolicy.enabled" -}}
{{- end -}}
{{- if .Values.grpc.socket.enabled -}}
{{- fail "grpc.socket.enabled: nobody shares the socket of a standalone relay; use the port" -}}
{{- end -}}
{{- end }}
