{{/* TLS, identities, policy and sealing: files of Secrets and ConfigMaps that the relay watches. Each is mounted as a
     directory, since only a directory follows a change (a subPath does not); see 0113. */}}

{{/* The Secret with the relay's certificate, or nothing. */}}
{{- define "relay.tlsSecret" -}}
{{- if .Values.tls.certManager.issuerRef -}}
{{ include "relay.fullname" . }}-tls
{{- else -}}
{{ .Values.tls.existingSecret }}
{{- end -}}
{{- end }}

{{/* Whether the API speaks TLS by `tls`. On loopback and on the socket it has no need to. */}}
{{- define "relay.apiTls" -}}
{{- if and (include "relay.exposed" .) (include "relay.tlsSecret" .) -}}true{{- end -}}
{{- end }}

{{/* Whether probes and metrics do. */}}
{{- define "relay.probesTls" -}}
{{- if and .Values.tls.probes (include "relay.tlsSecret" .) -}}true{{- end -}}
{{- end }}

{{/* The name in the relay's certificate. */}}
{{- define "relay.serverName" -}}
{{- .Values.tls.serverName | default (printf "%s.%s.svc" (include "relay.fullname" .) .Release.Namespace) -}}
{{- end }}

{{- define "relay.callersShowCertificates" -}}
{{- if eq (toString .Values.tls.clientCertificates) "required" -}}true{{- end -}}
{{- end }}

{{/* Whether a caller can prove who it is, without a certificate. */}}
{{- define "relay.takesTokens" -}}
{{- $authentication := .Values.authentication -}}
{{- if or $authentication.tokens.existingSecret $authentication.serviceAccounts.enabled (dig "authentication" "tokens_file" "" .Values.config) (dig "authentication" "jwt" list .Values.config) -}}
true
{{- end -}}
{{- end }}

{{/* The settings that come of these values, as YAML; laid over `config`. */}}
{{- define "relay.trust.settings" -}}
{{- $tls := .Values.tls -}}
{{- $authentication := .Values.authentication -}}
{{- $tree := dict -}}
{{- $pair := dict "certificate" (printf "/etc/relay-tls/%s" $tls.certKey) "key" (printf "/etc/relay-tls/%s" $tls.keyKey) -}}
{{- if include "relay.apiTls" . -}}
{{- $listener := deepCopy $pair -}}
{{- if include "relay.callersShowCertificates" . -}}
{{- $listener = merge $listener (dict "client_ca" (printf "/etc/relay-tls/%s" $tls.caKey) "client_certificates" "required") -}}
{{- end -}}
{{- $_ := set $tree "grpc" (dict "tls" $listener) -}}
{{- end -}}
{{- if include "relay.probesTls" . -}}
{{- $_ := set $tree "http" (dict "tls" $pair) -}}
{{- end -}}
{{- $proofs := dict -}}
{{- if $authentication.tokens.existingSecret -}}
{{- $_ := set $proofs "tokens_file" (printf "/etc/relay-tokens/%s" $authentication.tokens.key) -}}
{{- end -}}
{{- with $authentication.serviceAccounts -}}
{{- if .enabled -}}
{{- $cluster := dict "name" "cluster" "issuer" .issuer "audience" .audience "jwks" .jwks "jwks_ca" "/etc/relay-cluster/ca.crt" "jwks_token_file" "/etc/relay-cluster/token" -}}
{{- $_ := set $proofs "jwt" (append (dig "authentication" "jwt" list $.Values.config) $cluster) -}}
{{- end -}}
{{- end -}}
{{- if $proofs -}}
{{- $_ := set $tree "authentication" $proofs -}}
{{- end -}}
{{- if .Values.policy.existingConfigMap -}}
{{- $_ := set $tree "policy_file" (printf "/etc/relay-policy/%s" .Values.policy.key) -}}
{{- else if include "relay.hasRules" . -}}
{{- $_ := set $tree "policy_file" "/etc/relay/policy.yaml" -}}
{{- end -}}
{{- if .Values.sealing.existingSecret -}}
{{- $_ := set $tree "sealing" (dict "keyring" (printf "/etc/relay-keyring/%s" .Values.sealing.key)) -}}
{{- end -}}
{{- toYaml $tree -}}
{{- end }}

{{/* Whether the values have a policy; a list without a rule is one, which allows nothing. */}}
{{- define "relay.hasRules" -}}
{{- if kindIs "slice" .Values.policy.rules -}}true{{- end -}}
{{- end }}

{{/* policy.yaml: a rule or a bound a line, as JSON. */}}
{{- define "relay.policy" -}}
rules:{{ if not .Values.policy.rules }} []{{ end }}
{{- range .Values.policy.rules }}
  - {{ toJson . }}
{{- end }}
{{- with .Values.policy.bounds }}
bounds:
{{- range . }}
  - {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "relay.trust.env" -}}
{{- if include "relay.apiTls" . -}}
- name: RELAY_CA
  value: {{ ternary (printf "/etc/relay-tls/%s" .Values.tls.caKey) "system" (ne .Values.tls.caKey "") | quote }}
- name: RELAY_SERVER_NAME
  value: {{ include "relay.serverName" . | quote }}
{{- if include "relay.callersShowCertificates" . }}
- name: RELAY_CERTIFICATE
  value: {{ printf "/etc/relay-tls/%s" .Values.tls.certKey | quote }}
- name: RELAY_KEY
  value: {{ printf "/etc/relay-tls/%s" .Values.tls.keyKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Each directory, and the volume behind it, as JSON: the relay's own, which the pipeline's pods don't get. The keyring
     is among `relay.fileVolumes`. */}}
{{- define "relay.trust.directories" -}}
{{- $found := list -}}
{{- with include "relay.tlsSecret" . -}}
{{- $found = append $found (dict "name" "relay-tls" "volume" (dict "secret" (dict "secretName" .))) -}}
{{- end -}}
{{- with .Values.authentication.tokens.existingSecret -}}
{{- $found = append $found (dict "name" "relay-tokens" "volume" (dict "secret" (dict "secretName" .))) -}}
{{- end -}}
{{- if .Values.authentication.serviceAccounts.enabled -}}
{{- $token := dict "serviceAccountToken" (dict "path" "token" "expirationSeconds" 3600) -}}
{{- $ca := dict "configMap" (dict "name" "kube-root-ca.crt" "items" (list (dict "key" "ca.crt" "path" "ca.crt"))) -}}
{{- $found = append $found (dict "name" "relay-cluster" "volume" (dict "projected" (dict "sources" (list $token $ca)))) -}}
{{- end -}}
{{- with .Values.policy.existingConfigMap -}}
{{- $found = append $found (dict "name" "relay-policy" "volume" (dict "configMap" (dict "name" .))) -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{- define "relay.trust.volumeMounts" -}}
{{- range include "relay.trust.directories" . | fromJsonArray }}
- name: {{ .name }}
  mountPath: /etc/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "relay.trust.volumes" -}}
{{- range include "relay.trust.directories" . | fromJsonArray }}
- name: {{ .name }}
  {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- end }}

{{- define "relay.validate.trust" -}}
{{- $tls := .Values.tls -}}
{{- $config := .Values.config -}}
{{- $secret := include "relay.tlsSecret" . -}}
{{- if and $tls.certManager.issuerRef $tls.existingSecret -}}
{{- fail "tls.existingSecret: is not used, since cert-manager makes the Secret by tls.certManager.issuerRef; give one of the two" -}}
{{- end -}}
{{- if and $tls.certManager.issuerRef (not $tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: is empty; name the Issuer, or with kind: ClusterIssuer the ClusterIssuer" -}}
{{- end -}}
{{- if and $tls.probes (not $secret) -}}
{{- fail "tls.probes: wants a certificate; name its Secret in tls.existingSecret, or an issuer in tls.certManager.issuerRef" -}}
{{- end -}}
{{- if and (include "relay.callersShowCertificates" .) (not $secret) -}}
{{- fail "tls.clientCertificates: wants the relay's own certificate; name its Secret in tls.existingSecret, or an issuer in tls.certManager.issuerRef" -}}
{{- end -}}
{{- if and (include "relay.callersShowCertificates" .) (not $tls.caKey) -}}
{{- fail "tls.clientCertificates: goes with tls.caKey, which is empty: callers of every company have a certificate of a public CA" -}}
{{- end -}}
{{- if and $secret (not (include "relay.exposed" .)) (not $tls.probes) -}}
{{- fail "tls: nothing would use the certificate: the API is on loopback or a socket unless standalone.grpc.expose is set, and tls.probes is false" -}}
{{- end -}}
{{- if and (include "relay.callersShowCertificates" .) (not (include "relay.exposed" .)) -}}
{{- fail "tls.clientCertificates: nobody is asked, since the API is on loopback or a socket unless standalone.grpc.expose is set" -}}
{{- end -}}
{{- range $value, $taken := dict "tls" (and $secret (dig "grpc" "tls" "certificate" "" $config)) "authentication.tokens.existingSecret" (and .Values.authentication.tokens.existingSecret (dig "authentication" "tokens_file" "" $config)) "policy" (and (or (include "relay.hasRules" .) .Values.policy.existingConfigMap) (dig "policy_file" "" $config)) "sealing.existingSecret" (and .Values.sealing.existingSecret (dig "sealing" "keyring" "" $config)) -}}
{{- if $taken -}}
{{- fail (printf "%s: config names the file %s already; give it in one place" $value $taken) -}}
{{- end -}}
{{- end -}}
{{- if and (include "relay.hasRules" .) .Values.policy.existingConfigMap -}}
{{- fail "policy.existingConfigMap: is not used, since policy.rules has the policy; give one of the two" -}}
{{- end -}}
{{- if and .Values.policy.bounds (not (include "relay.hasRules" .)) -}}
{{- fail "policy.bounds: go with policy.rules, which is null; give rules, or write the bounds into the policy of policy.existingConfigMap" -}}
{{- end -}}
{{- if not (or .Values.sealing.existingSecret (dig "sealing" "keyring" "" $config)) -}}
{{- if dig "defaults" "sealing" false $config -}}
{{- fail "config.defaults.sealing: needs a keyring; name its Secret in sealing.existingSecret" -}}
{{- end -}}
{{- range $topic, $own := $config.topics -}}
{{- if dig "sealing" false ($own | default dict) -}}
{{- fail (printf "config.topics.%s.sealing: needs a keyring; name its Secret in sealing.existingSecret" $topic) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (include "relay.exposed" .) (not (dig "grpc" "insecure" false $config)) -}}
{{- $speaksTls := or $secret (dig "grpc" "tls" "certificate" "" $config) -}}
{{- $showCertificates := or (include "relay.callersShowCertificates" .) (eq (toString (dig "grpc" "tls" "client_certificates" "off" $config)) "required") -}}
{{- if and $speaksTls (not $showCertificates) (not (include "relay.takesTokens" .)) -}}
{{- fail "tls.clientCertificates: must be required, or callers send tokens, by authentication.tokens or authentication.serviceAccounts; where the network alone keeps strangers away, say config.grpc.insecure: true" -}}
{{- end -}}
{{- if and (include "relay.takesTokens" .) (not $speaksTls) -}}
{{- fail "authentication: tokens would cross the network in the clear; set tls, or where a mesh encrypts, config.grpc.insecure: true" -}}
{{- end -}}
{{- end -}}
{{- end }}
