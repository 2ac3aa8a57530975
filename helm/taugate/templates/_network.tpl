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

{{/* The ports of the endpoints and of the collector: (list context with-the-collector). */}}
{{- define "taugate.egressUrls" -}}
{{- $values := (index . 0).Values }}
{{- $urls := list $values.encoderEndpoint.url $values.rerankEndpoint.url (and (index . 1) $values.settings.otlp_endpoint) }}
{{- $ports := list }}
{{- range compact $urls }}
{{- $url := urlParse . }}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "80" "443" (eq $url.scheme "http"))) }}
{{- end }}
{{- range uniq $ports }}
- ports:
    - port: {{ . }}
      protocol: TCP
{{- end }}
{{- end }}

{{/* A calibration may ask the service for its traffic (`--url`). */}}
{{- define "taugate.egressService" -}}
- to:
    - podSelector:
        matchLabels:
          {{- include "taugate.selector" (list . "service") | nindent 10 }}
  ports:
    - port: http
      protocol: TCP
{{- end }}

{{- define "taugate.egressStorage" -}}
- ports:
    - port: {{ .Values.networkPolicy.objectStoragePort }}
      protocol: TCP
{{- end }}
