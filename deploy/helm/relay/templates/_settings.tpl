{{/* The settings file of the daemon, made from the values. */}}

{{/* A mapping as YAML, its leaves as JSON, which every reader of YAML takes alike. `names` is true where the keys are
     not ours, and may be `on` or `1`: topics. */}}
{{- define "relay.tree" -}}
{{- $indent := .indent -}}
{{- $names := .names -}}
{{- range $key, $value := .tree }}
{{ $indent }}{{ ternary (toJson $key) $key $names }}:
{{- if and (kindIs "map" $value) $value }}
{{- include "relay.tree" (dict "tree" $value "indent" (printf "%s  " $indent) "names" (eq $key "topics")) }}
{{- else }} {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{- define "relay.redisUrl" -}}
{{- $redis := .Values.redis -}}
{{- $sentinel := $redis.sentinel -}}
{{- $scheme := ternary "rediss" "redis" $redis.tls.enabled -}}
{{- if $redis.cluster.hosts -}}
{{ $scheme }}+cluster://{{ join "," $redis.cluster.hosts }}
{{- else if $sentinel.master -}}
{{ $scheme }}+sentinel://{{ join "," $sentinel.hosts }}/{{ $sentinel.master }}/{{ $sentinel.database }}
{{- else -}}
{{ $redis.url }}
{{- end -}}
{{- end }}

{{/* What the URL needs besides to find the files of TLS: `?ssl_ca_certs=…&…`, or nothing. `url` is what it follows. */}}
{{- define "relay.redisTlsOptions" -}}
{{- $tls := .root.Values.redis.tls -}}
{{- $options := list -}}
{{- if $tls.existingSecret -}}
{{- range $option, $key := dict "ssl_ca_certs" $tls.caKey "ssl_certfile" $tls.certKey "ssl_keyfile" $tls.keyKey -}}
{{- if $key -}}
{{- $options = append $options (printf "%s=/etc/relay-redis-tls/%s" $option $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $options -}}
{{ ternary "&" "?" (contains "?" .url) }}{{ join "&" $options }}
{{- end -}}
{{- end }}

{{/* relay.yaml. */}}
{{- define "relay.config" -}}
{{- include "relay.validate" . -}}
{{- $tree := deepCopy .Values.config -}}
{{- $redis := $tree.redis | default dict -}}
{{- if not .Values.redis.existingSecret.urlKey -}}
{{- $url := include "relay.redisUrl" . -}}
{{- $_ := set $redis "url" (printf "%s%s" $url (include "relay.redisTlsOptions" (dict "root" . "url" $url))) -}}
{{- end -}}
{{- $grpc := $tree.grpc | default dict -}}
{{- if .Values.grpc.socket.enabled -}}
{{- $_ := set $grpc "socket_mode" .Values.grpc.socket.mode -}}
{{- $_ := set $grpc "listen" "unix:/run/relay/relay.sock" -}}
{{- else -}}
{{- $pod := ternary "[::]" "0.0.0.0" (hasPrefix "[" .Values.http.address) -}}
{{- $host := ternary $pod "127.0.0.1" (eq (include "relay.exposed" .) "true") -}}
{{- $_ := set $grpc "listen" (printf "%s:%v" $host .Values.grpc.port) -}}
{{- /* The NetworkPolicy keeps strangers away from an exposed API, unless config brings TLS. */ -}}
{{- if and (ne $host "127.0.0.1") (not (hasKey $grpc "insecure")) (not (dig "tls" "certificate" "" $grpc)) (not (include "relay.apiTls" .)) -}}
{{- $_ := set $grpc "insecure" true -}}
{{- end -}}
{{- end -}}
{{- $http := dict "listen" (printf "%s:%v" .Values.http.address .Values.http.port) "ready_needs_redis" .Values.readiness.needsRedis -}}
{{- $classic := and (eq .Values.mode "sidecar") (eq .Values.sidecar.kind "classic") -}}
{{- $tree = merge (dict "redis" $redis "grpc" $grpc "http" $http "stop_last" $classic) $tree -}}
{{- $tree = mergeOverwrite $tree (include "relay.trust.settings" . | fromYaml) -}}
{{- if .Values.recurrences -}}
{{- $_ := set $tree "recurrences" (dict "file" "/etc/relay/recurrences.yaml") -}}
{{- end -}}
{{- include "relay.tree" (dict "tree" $tree "indent" "" "names" false) | trim }}
{{ end }}

{{/* recurrences.yaml: a JSON document a line, since Helm would write large numbers as YAML's readers don't take them. */}}
{{- define "relay.recurrences" -}}
{{- range .Values.recurrences }}
- {{ toJson . }}
{{- end }}
{{- end }}
