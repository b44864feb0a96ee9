{{/* The container, and what of the pod goes with it. */}}

{{/* For the application's pod: under `initContainers` where `sidecar.kind` is native, under `containers` where it is
     classic.  {{- include "relay.sidecar" .Subcharts.relay | nindent 8 }}  */}}
{{- define "relay.sidecar" -}}
{{- if ne .Values.mode "sidecar" -}}
{{- fail "mode: relay.sidecar is included in a pod, and mode is standalone; set it to sidecar" -}}
{{- end -}}
- name: relay
{{- if eq .Values.sidecar.kind "native" }}
  restartPolicy: Always
{{- end }}
{{- include "relay.container" . | nindent 2 }}
{{- if .Values.outbox.database.existingSecret }}
- name: relay-outbox
{{- if eq .Values.sidecar.kind "native" }}
  restartPolicy: Always
{{- end }}
{{- include "relay.outboxContainer" . | nindent 2 }}
{{- end }}
{{- end }}

{{/* It dials its relay as the application does, and starts again by itself where database or relay are away: it needs no
     probes. A native one ends before the relay, since it has begun after it. */}}
{{- define "relay.outboxContainer" -}}
{{- $own := .Values.outbox -}}
image: {{ include "relay.image" (dict "root" . "image" $own.image) | quote }}
imagePullPolicy: {{ $own.image.pullPolicy }}
args: [outbox, run, --movers, "{{ int64 $own.movers }}", --metrics, "{{ .Values.http.address }}:{{ int64 $own.metricsPort }}"]
env:
  {{- include "relay.applicationEnv" . | nindent 2 }}
  {{- include "relay.trust.env" . | nindent 2 }}
  - name: RELAY_OUTBOX_DATABASE
    valueFrom:
      secretKeyRef: {name: {{ $own.database.existingSecret | quote }}, key: {{ $own.database.key | quote }}}
{{- with $own.extraEnv }}
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - name: relay-outbox
    containerPort: {{ int64 $own.metricsPort }}
resources:
  {{- toYaml $own.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- $mounts := concat (include "relay.applicationVolumeMounts" . | fromYamlArray) $own.extraVolumeMounts }}
{{- if include "relay.apiTls" . }}
{{- $mounts = prepend $mounts (dict "name" "relay-tls" "mountPath" "/etc/relay-tls" "readOnly" true) }}
{{- end }}
{{- with $mounts }}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "relay.container" -}}
image: {{ include "relay.image" (dict "root" . "image" .Values.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/relay/relay.yaml]
env:
  {{- include "relay.env" . | nindent 2 }}
  {{- include "relay.trust.env" . | nindent 2 }}
ports:
  - name: relay-http
    containerPort: {{ .Values.http.port }}
{{- if include "relay.exposed" . }}
  - name: relay-grpc
    containerPort: {{ .Values.grpc.port }}
{{- end }}
startupProbe:
  httpGet: {path: /healthz/startup, port: relay-http{{ include "relay.probeScheme" . }}}
  {{- toYaml .Values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz/live, port: relay-http{{ include "relay.probeScheme" . }}}
  {{- toYaml .Values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: /healthz/ready, port: relay-http{{ include "relay.probeScheme" . }}}
  {{- toYaml .Values.probes.readiness | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "relay.volumeMounts" . | nindent 2 }}
  {{- include "relay.trust.volumeMounts" . | nindent 2 }}
{{- if .Values.grpc.socket.enabled }}
  - name: relay-socket
    mountPath: /run/relay
{{- end }}
{{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The kubelet takes any certificate. */}}
{{- define "relay.probeScheme" -}}
{{- if include "relay.probesTls" . -}}, scheme: HTTPS{{- end -}}
{{- end }}

{{/* Secrets, where the pod is, OpenTelemetry. Everything else is in the ConfigMap. */}}
{{- define "relay.env" -}}
{{- $secret := .Values.redis.existingSecret -}}
- name: RELAY_TARGET
  value: {{ include "relay.target" . | quote }}
{{- $tls := include "relay.redisTlsOptions" (dict "root" . "url" "") }}
{{- $names := dict "urlKey" (ternary "RELAY_REDIS_SECRET_URL" "RELAY_REDIS__URL" (ne $tls "")) "passwordKey" "RELAY_REDIS__PASSWORD" "usernameKey" "RELAY_REDIS__USERNAME" "sentinelPasswordKey" "RELAY_REDIS__SENTINEL_PASSWORD" }}
{{- range $field, $variable := $names }}
{{- with get $secret $field }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef: {name: {{ $secret.name | quote }}, key: {{ . | quote }}}
{{- end }}
{{- end }}
{{- with .Values.redis.username }}
- name: RELAY_REDIS__USERNAME
  value: {{ . | quote }}
{{- end }}
{{- if and $tls $secret.urlKey }}
- name: RELAY_REDIS__URL
  value: {{ printf "$(RELAY_REDIS_SECRET_URL)%s" $tls | quote }}
{{- end }}
{{- range $variable, $field := dict "POD_NAME" "metadata.name" "POD_UID" "metadata.uid" "POD_NAMESPACE" "metadata.namespace" "NODE_NAME" "spec.nodeName" "HOST_IP" "status.hostIP" }}
- name: {{ $variable }}
  valueFrom:
    fieldRef: {fieldPath: {{ $field }}}
{{- end }}
- name: OTEL_SERVICE_NAME
  value: {{ .Values.telemetry.serviceName | quote }}
{{- $attributes := "k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.namespace.name=$(POD_NAMESPACE),k8s.node.name=$(NODE_NAME),k8s.container.name=relay" }}
{{- range $name, $value := .Values.telemetry.resourceAttributes }}
{{- $attributes = printf "%s,%s=%s" $attributes $name $value }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ $attributes | quote }}
{{- with .Values.telemetry.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ $.Values.telemetry.protocol | quote }}
{{- end }}
{{- range $name, $value := .Values.telemetry.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "relay.volumeMounts" -}}
- name: relay-config
  mountPath: /etc/relay
  readOnly: true
{{- if .Values.redis.tls.existingSecret }}
- name: relay-redis-tls
  mountPath: /etc/relay-redis-tls
  readOnly: true
{{- end }}
{{- if .Values.sealing.existingSecret }}
- name: relay-keyring
  mountPath: /etc/relay-keyring
  readOnly: true
{{- end }}
{{- end }}

{{/* For the pod's `volumes`. */}}
{{- define "relay.volumes" -}}
{{- include "relay.fileVolumes" . }}
{{- include "relay.trust.volumes" . }}
{{- if .Values.grpc.socket.enabled }}
- name: relay-socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- end }}

{{- define "relay.fileVolumes" -}}
- name: relay-config
  configMap:
    name: {{ include "relay.fullname" . }}
{{- if .Values.redis.tls.existingSecret }}
- name: relay-redis-tls
  secret:
    secretName: {{ .Values.redis.tls.existingSecret | quote }}
{{- end }}
{{- if .Values.sealing.existingSecret }}
- name: relay-keyring
  secret:
    secretName: {{ .Values.sealing.existingSecret | quote }}
{{- end }}
{{- end }}

{{/* For the application's container: where its relay is. */}}
{{- define "relay.applicationEnv" -}}
- name: RELAY_TARGET
  value: {{ include "relay.target" . | quote }}
{{- end }}

{{/* For the application's container: nothing, unless `grpc.socket.enabled`. */}}
{{- define "relay.applicationVolumeMounts" -}}
{{- if .Values.grpc.socket.enabled -}}
- name: relay-socket
  mountPath: /run/relay
{{- end -}}
{{- end }}
