{{/* Scheduling of the service's pods. */}}

{{- define "taugate.scheduling" -}}
{{- with .Values.topologySpread }}
topologySpreadConstraints:
  {{- include "taugate.spread" (list $ "kubernetes.io/hostname" .) | nindent 2 }}
  {{- include "taugate.spread" (list $ "topology.kubernetes.io/zone" .) | nindent 2 }}
{{- end }}
{{- include "taugate.affinity" (list . .Values.affinity) }}
{{- include "taugate.asFields" (merge (dict) .Values.podSpec (dict "nodeSelector" .Values.nodeSelector "tolerations" .Values.tolerations)) }}
{{- end }}

{{/* Pods are spread per revision, so terminating pods do not count. */}}
{{- define "taugate.spread" -}}
- topologyKey: {{ index . 1 }}
  maxSkew: 1
  whenUnsatisfiable: {{ index . 2 }}
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "taugate.selector" (list (index . 0) "service") | nindent 6 }}
{{- end }}

{{/* Fields as in Kubernetes; those that are empty are left out. */}}
{{- define "taugate.asFields" -}}
{{- range $name, $value := . }}
{{- if $value }}
{{ dict $name $value | toYaml }}
{{- end }}
{{- end }}
{{- end }}
