{{/* Rules that several NetworkPolicies have. */}}

{{- define "taugate.egressDns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}

{{- define "taugate.egressStorage" -}}
- ports:
    - port: {{ .Values.networkPolicy.objectStoragePort }}
      protocol: TCP
{{- end }}
