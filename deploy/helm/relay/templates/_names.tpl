{{/* Names and labels. All of them work in the chart's own scope and in a parent's, as `.Subcharts.relay`. */}}

{{- define "relay.name" -}}
{{- .Values.nameOverride | default .Chart.Name | lower | replace "_" "-" | trunc 53 | trimSuffix "-" -}}
{{- end }}

{{- define "relay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "relay.name" .) .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- $name := printf "%s-%s" .Release.Name (include "relay.name" .) -}}
{{- /* Cut short, two relays of one release, or a relay and its application, would have one name. */ -}}
{{- ternary $name (printf "%s-%s" (trunc 44 $name | trimSuffix "-") ($name | sha256sum | trunc 8)) (le (len $name) 53) -}}
{{- end -}}
{{- end }}

{{/* By what a Deployment and a NetworkPolicy know the standalone pods: these must never change. */}}
{{- define "relay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: relay
{{- end }}

{{/* Of the chart's own objects. */}}
{{- define "relay.objectLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* For the labels of every pod that has a relay in it: by these the PodMonitor finds it. */}}
{{- define "relay.labels" -}}
relay-instance: {{ include "relay.fullname" . }}
{{- end }}

{{/* For the annotations of every pod that has a relay in it: what changes the settings rolls the pods. */}}
{{- define "relay.annotations" -}}
checksum/relay-config: {{ printf "%s%s" (include "relay.config" .) (include "relay.recurrences" .) | sha256sum }}
{{- end }}

{{/* Of `image`, one of the images in the values; `root` is the chart's scope. */}}
{{- define "relay.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{- define "relay.serviceAccountName" -}}
{{- $account := .Values.standalone.serviceAccount -}}
{{- $account.name | default (ternary (include "relay.fullname" .) "default" $account.create) -}}
{{- end }}

{{/* Whether the API is to be reached from other pods. */}}
{{- define "relay.exposed" -}}
{{- if and (eq .Values.mode "standalone") .Values.standalone.grpc.expose -}}true{{- end -}}
{{- end }}

{{/* What `relay …` on the command line and the application's client dial, within the pod. */}}
{{- define "relay.target" -}}
{{- if .Values.grpc.socket.enabled -}}
unix:/run/relay/relay.sock
{{- else -}}
127.0.0.1:{{ .Values.grpc.port }}
{{- end -}}
{{- end }}
