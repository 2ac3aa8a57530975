{{/* The service's settings, as variables. */}}

{{/* A setting by name as text, or the service's default: (list context name), or of an option (list context name variable option). */}}
{{- define "taugate.setting" -}}
{{- $context := index . 0 }}
{{- $name := index . 1 }}
{{- $given := index $context.Values.settings $name }}
{{- $parts := index $context.Values.settings (index (append . $name) 2) | toString | splitList "," }}
{{- if eq (len .) 4 }}
{{- $option := printf "%s=" (index . 3) }}
{{- range $parts }}
{{- if hasPrefix $option . }}
{{- $given = trimPrefix $option . }}
{{- end }}
{{- end }}
{{- else if contains "=" (first $parts) }}
{{- $given = "" }}
{{- else if gt (len $parts) 1 }}
{{- $given = first $parts }}
{{- end }}
{{- if or (kindIs "invalid" $given) (eq (toString $given) "") }}
{{- $given = index ($context.Files.Get "files/settings.json" | fromJson) $name }}
{{- end }}
{{- $given | toJson | trimAll "\"" }}
{{- end }}

{{/* The Secret with the file of API keys, or nothing. */}}
{{- define "taugate.keysSecret" -}}
{{- if .Values.keys.existingSecret }}
{{- include "taugate.secret" (list .Values.keys.existingSecret) }}
{{- else if .Values.keys.entries }}
{{- include "taugate.fullname" . }}-keys
{{- end }}
{{- end }}

{{- define "taugate.hasKeys" -}}
{{- if or (include "taugate.keysSecret" .) .Values.keys.variable }}true{{ end }}
{{- end }}

{{- define "taugate.trusts" -}}
{{- if .Values.trustedKeys.existingSecret }}true{{ end }}
{{- end }}

{{/* Host names of requests by port-forward, through the Service and the Ingress. Probes and Prometheus use IP addresses. */}}
{{- define "taugate.allowedHosts" -}}
{{- $service := include "taugate.fullname" . }}
{{- $within := printf "%s.%s" $service .Release.Namespace }}
{{- $hosts := list "localhost" $service $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) }}
{{- if .Values.ingress.hosts }}
{{- range .Values.ingress.hosts }}
{{- $hosts = append $hosts .host }}
{{- end }}
{{- end }}
{{- concat $hosts (default list .Values.httpRoute.hostnames) .Values.listen.allowedHosts | uniq | join "," }}
{{- end }}

{{/* Whether a pod serves from a copy: of a URL, or of a signed release, which then cannot be changed by others. */}}
{{- define "taugate.copies" -}}
{{- if or .Values.releases.url (include "taugate.trusts" .) }}true{{ end }}
{{- end }}

{{/* All settings that are not secret, in one ConfigMap. toJson writes 67108864, while Helm itself would write 6.7108864e+07. */}}
{{- define "taugate.settings" -}}
TAUGATE_RELEASES: {{ default "/releases" .Values.releases.url | quote }}
TAUGATE_HOST: {{ .Values.listen.host | quote }}
TAUGATE_PORT: "8000"
TAUGATE_ALLOWED_HOSTS: {{ include "taugate.allowedHosts" . | quote }}
{{- if include "taugate.copies" . }}
TAUGATE_CACHE: /cache
{{- end }}
{{- if include "taugate.keysSecret" . }}
TAUGATE_KEYS_FILE: {{ include "taugate.entry" (list (default "" .Values.keys.existingSecret) "keys.json") | printf "/etc/taugate/keys/%s" | quote }}
{{- end }}
{{- if include "taugate.trusts" . }}
TAUGATE_TRUSTED_KEYS: /etc/taugate/trusted
{{- end }}
{{- if .Values.queryLog.enabled }}
TAUGATE_QUERY_LOG: /queries/queries.jsonl
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if not (kindIs "invalid" $value) }}
TAUGATE_{{ upper $name }}: {{ $value | toJson | trimAll "\"" | quote }}
{{- end }}
{{- end }}
{{- if .Values.settings.telemetry }}
ORT_DISABLE_TELEMETRY: "0"  # the image has 1, which the setting alone would leave
HF_HUB_DISABLE_TELEMETRY: "0"
{{- end }}
{{- end }}
