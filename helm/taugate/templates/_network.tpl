{{/* Rules shared by NetworkPolicies. */}}

{{- define "taugate.egressDns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}

{{- define "taugate.egressEngine" -}}
{{- if .Values.engine.url }}
- ports:
    - port: {{ .Values.networkPolicy.enginePort }}
      protocol: TCP
{{- end }}
{{- end }}

{{- define "taugate.egressStorage" -}}
- ports:
    - port: {{ .Values.networkPolicy.objectStoragePort }}
      protocol: TCP
{{- end }}
