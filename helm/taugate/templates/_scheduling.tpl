{{/* Scheduling of the service's pods. */}}

{{- define "taugate.scheduling" -}}
{{- if or .Values.topologySpread.hostname .Values.topologySpread.zone }}
topologySpreadConstraints:
  {{- with .Values.topologySpread.hostname }}
  {{- include "taugate.spread" (list $ "kubernetes.io/hostname" .) | nindent 2 }}
  {{- end }}
  {{- with .Values.topologySpread.zone }}
  {{- include "taugate.spread" (list $ "topology.kubernetes.io/zone" .) | nindent 2 }}
  {{- end }}
{{- end }}
{{- include "taugate.affinity" (list . .Values.affinity) }}
{{- include "taugate.nodes" (dict "nodeSelector" .Values.nodeSelector "tolerations" .Values.tolerations) }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
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

{{- define "taugate.nodes" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
