{{/* Variables that are secret or belong to one kind of pod. */}}

{{/* One variable from a Secret: (list name secret key). */}}
{{- define "taugate.fromSecret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 | quote }}
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
{{ include "taugate.fromSecret" (list "REDIS_PASSWORD" (include "taugate.redisPasswordSecret" .) (include "taugate.redisPasswordKey" .)) }}
- name: TAUGATE_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "taugate.fullname" . }}-redis:6379/0
{{- else if $redis.existingSecret }}
{{ include "taugate.fromSecret" (list "TAUGATE_REDIS_URL" $redis.existingSecret $redis.key) }}
{{- else if $redis.url }}
{{ include "taugate.fromSecret" (list "TAUGATE_REDIS_URL" (printf "%s-redis-url" (include "taugate.fullname" .)) "url") }}
{{- end }}
{{- end }}

{{- define "taugate.redisPasswordSecret" -}}
{{- default (printf "%s-redis" (include "taugate.fullname" .)) .Values.redis.passwordSecret.existingSecret }}
{{- end }}

{{- define "taugate.redisPasswordKey" -}}
{{- with .Values.redis.passwordSecret }}{{ if .existingSecret }}{{ .key }}{{ else }}password{{ end }}{{ end }}
{{- end }}

{{/* The engine's URL, for all pods that read or write its collections. */}}
{{- define "taugate.engineEnv" -}}
{{- with .Values.engine.url }}
- name: TAUGATE_ENGINE_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.engine.tokenSecret.existingSecret }}
- name: TAUGATE_ENGINE_TOKEN_FILE
  value: {{ printf "/etc/taugate/engine/%s" .Values.engine.tokenSecret.key | quote }}
{{- end }}
{{- end }}

{{/* The endpoints of the encoder and of the reranker by name, for all pods that use them. */}}
{{- define "taugate.endpoints" -}}
{{- toJson (dict "encoder" .Values.encoderEndpoint "rerank" .Values.rerankEndpoint) }}
{{- end }}

{{- define "taugate.endpointsEnv" -}}
{{- range $name, $endpoint := include "taugate.endpoints" . | fromJson }}
{{- with $endpoint.url }}
{{- $key := printf ",key_file=/etc/taugate/%s/%s" $name $endpoint.keySecret.key }}
- name: TAUGATE_{{ upper $name }}_URL
  value: {{ printf "%s%s" . (ternary $key "" (not (empty $endpoint.keySecret.existingSecret))) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variables of the service. */}}
{{- define "taugate.serviceEnv" -}}
{{- with .Values.keys.variable }}
{{- if .existingSecret }}
{{ include "taugate.fromSecret" (list "TAUGATE_KEYS" .existingSecret .key) }}
{{- end }}
{{- end }}
{{- include "taugate.redisEnv" . }}
{{- include "taugate.engineEnv" . }}
{{- include "taugate.endpointsEnv" . }}
{{- if .Values.releases.url }}
{{- include "taugate.storageEnv" .Values.releases.objectStorage }}
{{- end }}
{{- if .Values.queryLog.existingClaim }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- include "taugate.plainEnv" .Values.env }}
{{- end }}

{{/* Access to object storage. */}}
{{- define "taugate.storageEnv" -}}
{{- with .endpoint }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with .region }}
- name: AWS_REGION
  value: {{ . | quote }}
{{- end }}
{{- end }}
