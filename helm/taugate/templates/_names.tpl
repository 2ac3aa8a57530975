{{/* Names and labels. A name is cut to 63 characters minus the longest suffix. */}}

{{- define "taugate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "taugate.fullname" -}}
{{- $name := include "taugate.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Labels that select the pods of a component and can never change: (list context component). */}}
{{- define "taugate.selector" -}}
{{- $context := index . 0 -}}
app.kubernetes.io/name: {{ include "taugate.name" $context }}
app.kubernetes.io/instance: {{ $context.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "taugate.labels" -}}
{{- $context := index . 0 -}}
{{ include "taugate.selector" . }}
app.kubernetes.io/version: {{ $context.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: taugate
app.kubernetes.io/managed-by: {{ $context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $context.Chart.Name $context.Chart.Version | replace "+" "_" }}
{{- include "taugate.commonLabels" $context }}
{{- end }}

{{- define "taugate.commonLabels" -}}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of a pod, without the chart's version, so that a new chart does not restart unchanged pods. */}}
{{- define "taugate.podLabels" -}}
{{ include "taugate.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: taugate
{{- include "taugate.commonLabels" (index . 0) }}
{{- end }}

{{/* Name, namespace and labels of an object: (list context component suffix). */}}
{{- define "taugate.metadata" -}}
{{- $context := index . 0 -}}
name: {{ include "taugate.fullname" $context }}{{ index . 2 }}
namespace: {{ $context.Release.Namespace }}
labels:
  {{- include "taugate.labels" . | nindent 2 }}
{{- end }}

{{/* Name of a service account: (list context values suffix). */}}
{{- define "taugate.account" -}}
{{- $values := index . 1 }}
{{- default (printf "%s%s" (include "taugate.fullname" (index . 0)) (index . 2)) $values.name }}
{{- end }}

{{/* An image: (list context values), the values of a group or a name; without tag or digest, it is of this version. */}}
{{- define "taugate.image" -}}
{{- $image := index . 1 -}}
{{- $version := (index . 0).Chart.AppVersion -}}
{{- if kindIs "string" $image -}}
{{ $image }}{{ if not (regexMatch "[:@][^/]*$" $image) }}:{{ $version }}{{ end }}
{{- else if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default $version $image.tag }}
{{- end }}
{{- end }}
