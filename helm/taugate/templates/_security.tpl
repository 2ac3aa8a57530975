{{/* The restricted level of Kubernetes' pod security standards, and a read-only root file system. */}}

{{- define "taugate.containerSecurity" -}}
{{- $context := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) "readOnlyRootFilesystem" true }}
{{- include "taugate.replaced" (list $context .Values.containerSecurityContext) }}
{{- end }}

{{/*
Of every pod, of whatever image. A Service named taugate would otherwise give each pod a variable TAUGATE_PORT=tcp://…,
which is also the name of a setting: enableServiceLinks is off.
*/}}
{{- define "taugate.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The context of a pod. */}}
{{- define "taugate.podSecurity" -}}
{{- $context := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") "runAsUser" 10001 "runAsGroup" 10001 "fsGroup" 10001 }}
{{- $context = include "taugate.replaced" (list $context .Values.podSecurityContext) | fromYaml }}
{{- if and $context.fsGroup (not $context.fsGroupChangePolicy) }}
{{- $_ := set $context "fsGroupChangePolicy" "OnRootMismatch" }}
{{- end }}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if hasKey $context $name }}{{ $_ := set $context $name (get $context $name | int64) }}{{ end }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* Fields in place of those of the chart: (list chart's given). A field that is null is removed; merge would keep it. */}}
{{- define "taugate.replaced" -}}
{{- $fields := index . 0 }}
{{- range $name, $value := index . 1 }}
{{- $_ := set $fields $name $value }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $fields $name }}
{{- end }}
{{- end }}
{{- toYaml $fields }}
{{- end }}

{{/* For every pod with an image of taugate. */}}
{{- define "taugate.pod" -}}
{{ include "taugate.podBasics" . }}
securityContext:
  {{- include "taugate.podSecurity" . | nindent 2 }}
{{- end }}

{{/* Resources of a container, which reserves room for logs and temporary files: (list resources room), or with defaults. */}}
{{- define "taugate.resources" -}}
{{- $resources := index . 0 }}
{{- if gt (len .) 2 }}
{{- $resources = merge (dict) $resources (index . 2) }}
{{- end }}
{{- $requests := merge (dict) (default dict $resources.requests) (dict "ephemeral-storage" (index . 1)) }}
{{- toYaml (merge (dict "requests" $requests) $resources) }}
{{- end }}
