{{/* Rules shared by NetworkPolicies. */}}

{{- define "taugate.egressDns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}

{{/* The port of a URL, or the usual one of its protocol: (list URL port). */}}
{{- define "taugate.port" -}}
{{- $url := urlParse (index . 0) }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (index . 1) }}
{{- end }}

{{- define "taugate.egressEngine" -}}
{{- range splitList "," (.Values.engine.url | default "") | compact }}
- ports:
    - port: {{ include "taugate.port" (list . (ternary "5432" "19530" (hasPrefix "postgres" .))) }}
      protocol: TCP
{{- end }}
{{- end }}

{{/* The ports of the endpoints and of the collector: (list context with-the-collector). */}}
{{- define "taugate.egressUrls" -}}
{{- $values := (index . 0).Values }}
{{- $urls := list $values.encoderEndpoint.url $values.rerankEndpoint.url (and (index . 1) $values.settings.otlp_endpoint) }}
{{- $ports := list }}
{{- range compact $urls }}
{{- $ports = append $ports (include "taugate.port" (list . (ternary "80" "443" (hasPrefix "http:" .)))) }}
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

{{/* Of object storage: (list context variables). */}}
{{- define "taugate.egressStorage" -}}
{{- $endpoint := index (index . 1) "AWS_ENDPOINT_URL" | default "https://" | toString }}
- ports:
    - port: {{ include "taugate.port" (list $endpoint (ternary "80" "443" (hasPrefix "http:" $endpoint))) }}
      protocol: TCP
{{- end }}
