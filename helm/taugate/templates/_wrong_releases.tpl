{{/* Conflicting values of releases and of recalibration. */}}

{{- define "taugate.wrong.releases" -}}
{{- $releases := .Values.releases }}
{{- $volume := $releases.volume }}
{{- if and (not $releases.url) (eq $volume.accessMode "ReadOnlyMany") (not $volume.existingClaim) }}
a new ReadOnlyMany volume cannot be written to: set releases.volume.existingClaim to one that has releases
{{- end }}
{{- if and (not $releases.url) (eq $volume.accessMode "ReadOnlyMany") (include "taugate.calibrates" .) }}
recalibration cannot write to a ReadOnlyMany volume: use releases.volume.accessMode=ReadWriteMany
{{- end }}
{{- end }}

{{- define "taugate.wrong.recalibration" -}}
{{- $values := .Values.recalibration }}
{{- $data := $values.data }}
{{- if and $data.url $data.existingClaim }}
recalibration.data.url and recalibration.data.existingClaim exclude one another: keep one
{{- end }}
{{- if and $values.cronJob.enabled (has "--url" $values.cronJob.arguments) }}
{{- if .Values.releases.url }}
recalibration.cronJob.arguments has --url, but pods that serve from releases.url do not read the directory of the job, so they cannot try its releases: remove --url
{{- else if not $values.promotion.enabled }}
recalibration.cronJob.arguments has --url, a trial before a promotion, while promotion is off: set recalibration.promotion.enabled=true, or remove --url
{{- end }}
{{- end }}
{{- if and (or $values.cronJob.enabled (and $values.job.enabled (not $values.job.arguments))) (not $data.url) (not $data.existingClaim) }}
recalibration has no data: set recalibration.data.url, such as s3://bucket/data/faq, or a claim with corpus.jsonl, queries.jsonl and qrels/ in recalibration.data.existingClaim
{{- end }}
{{- if and $values.promotion.rule (or $values.promotion.maxAccuracyDrop $values.promotion.maxKeptIncrease) }}
recalibration.promotion.rule is replaced by maxAccuracyDrop and maxKeptIncrease: leave it out
{{- end }}
{{- if and $values.promotion.rule (not (include "taugate.ruleArguments" $values.promotion.rule)) }}
this sentence in recalibration.promotion.rule is no longer read: use recalibration.promotion.maxAccuracyDrop and maxKeptIncrease
{{- end }}
{{- if and (or $values.promotion.rule $values.promotion.maxAccuracyDrop $values.promotion.maxKeptIncrease) (not $values.promotion.enabled) }}
a rule of recalibration.promotion has no effect while promotion is off: set recalibration.promotion.enabled=true, or remove the rule
{{- end }}
{{- if and (or $values.cronJob.enabled $values.job.enabled) $values.promotion.enabled }}
{{- if eq (include "taugate.setting" (list . "reload_seconds") | float64) 0.0 }}
recalibration.promotion.enabled has no effect while replicas do not check for a new release: set settings.reload_seconds=60
{{- end }}
{{- if and (include "taugate.trusts" .) (not $values.signingKey) }}
only signed releases are served (trustedKeys), but recalibration signs none: name a Secret with a private key in recalibration.signingKey, or set recalibration.promotion.enabled=false
{{- end }}
{{- end }}
{{- end }}
