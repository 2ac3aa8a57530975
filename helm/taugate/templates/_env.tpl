{{/* Variables that are secret or belong to one kind of pod. */}}

{{/* SECRET of SECRET/ENTRY, and its entry or the usual one: (list text entry). */}}
{{- define "taugate.secret" -}}
{{- index . 0 | toString | splitList "/" | first }}
{{- end }}

{{- define "taugate.entry" -}}
{{- index (append (index . 0 | toString | splitList "/") (index . 1)) 1 }}
{{- end }}

{{/* One variable from a Secret: (list name SECRET/ENTRY entry). */}}
{{- define "taugate.fromSecret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ include "taugate.secret" (rest .) }}
      key: {{ include "taugate.entry" (rest .) | quote }}
{{- end }}

{{/* Variables from whole objects: (list context Secret-of-the-object-storage). */}}
{{- define "taugate.envFrom" -}}
{{- $secrets := list }}
{{- with index . 1 }}
{{- $secrets = list (dict "secretRef" (dict "name" .)) }}
{{- end }}
{{- with concat $secrets (index . 0).Values.extraEnvFrom }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "taugate.plainEnv" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  {{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* TAUGATE_REDIS_URL. The chart's own Redis has its password in a Secret, which goes into the URL in the pod. */}}
{{- define "taugate.redisEnv" -}}
{{- $redis := .Values.redis }}
{{- if $redis.enabled }}
{{ include "taugate.fromSecret" (list "REDIS_PASSWORD" .Values.redis.passwordSecret "password") }}
- name: TAUGATE_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "taugate.fullname" . }}-redis:6379/0
{{- else if $redis.existingSecret }}
{{ include "taugate.fromSecret" (list "TAUGATE_REDIS_URL" $redis.existingSecret "url") }}
{{- else if $redis.url }}
{{ include "taugate.fromSecret" (list "TAUGATE_REDIS_URL" (printf "%s-redis-url" (include "taugate.fullname" .)) "url") }}
{{- end }}
{{- end }}

{{/* The engine's URL, for all pods that read or write its collections. */}}
{{- define "taugate.engineEnv" -}}
{{- with .Values.engine.url }}
- name: TAUGATE_ENGINE_URL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.engine.tokenSecret }}
- name: TAUGATE_ENGINE_TOKEN_FILE
  value: {{ include "taugate.entry" (list . "token") | printf "/etc/taugate/engine/%s" | quote }}
{{- end }}
{{- end }}

{{/* The endpoints of the encoder and of the reranker by name, for all pods that use them. */}}
{{- define "taugate.endpoints" -}}
{{- toJson (dict "encoder" .Values.encoderEndpoint "rerank" .Values.rerankEndpoint) }}
{{- end }}

{{- define "taugate.endpointsEnv" -}}
{{- range $name, $endpoint := include "taugate.endpoints" . | fromJson }}
{{- with $endpoint.url }}
{{- $key := include "taugate.entry" (list (default "" $endpoint.keySecret) "key") | printf ",key_file=/etc/taugate/%s/%s" $name }}
- name: TAUGATE_{{ upper $name }}_URL
  value: {{ printf "%s%s" . (ternary $key "" (not (empty $endpoint.keySecret))) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables of the service. */}}
{{- define "taugate.serviceEnv" -}}
{{- with .Values.keys.variable }}
{{ include "taugate.fromSecret" (list "TAUGATE_KEYS" . "keys.json") }}
{{- end }}
{{- include "taugate.redisEnv" . }}
{{- include "taugate.engineEnv" . }}
{{- include "taugate.endpointsEnv" . }}
{{- if .Values.queryLog.existingClaim }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- include "taugate.plainEnv" .Values.env }}
{{- end }}
