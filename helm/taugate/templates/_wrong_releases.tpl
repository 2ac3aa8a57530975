{{/* Releases, and what is made of them: what does not go together. */}}

{{- define "taugate.wrong.releases" -}}
{{- $releases := .Values.releases }}
{{- $volume := $releases.volume }}
{{- if and $releases.url $volume.enabled }}
releases.url and releases.volume.enabled exclude one another: set releases.volume.enabled=false to serve from the URL, or leave out the URL
{{- end }}
{{- if not (or $releases.url $volume.enabled) }}
there is no place with releases: set releases.volume.enabled=true, or give releases.url, such as s3://bucket/team
{{- end }}
{{- if and $volume.enabled (eq $volume.accessMode "ReadWriteOnce") (not $volume.oneNode) }}
a volume that is ReadWriteOnce is of one node, and a rolling update starts a second pod that may be on another: set releases.volume.oneNode=true to keep all of them on one, or use releases.volume.accessMode=ReadWriteMany or releases.url
{{- end }}
{{- if and $volume.enabled (eq $volume.accessMode "ReadOnlyMany") (not $volume.existingClaim) }}
nobody could write to a new volume that is ReadOnlyMany: name one that has releases in releases.volume.existingClaim
{{- end }}
{{- if and $volume.enabled (eq $volume.accessMode "ReadOnlyMany") (include "taugate.calibrates" .) }}
recalibration cannot write to a volume that is ReadOnlyMany: use releases.volume.accessMode=ReadWriteMany
{{- end }}
{{- end }}

{{- define "taugate.wrong.recalibration" -}}
{{- $values := .Values.recalibration }}
{{- $data := $values.data }}
{{- if and $data.url $data.existingClaim }}
recalibration.data.url and recalibration.data.existingClaim exclude one another: keep one
{{- end }}
{{- if and (or $values.cronJob.enabled (and $values.job.enabled (not $values.job.arguments))) (not $data.url) (not $data.existingClaim) }}
recalibration has no data: give recalibration.data.url, such as s3://bucket/data/faq, or a claim with corpus.jsonl, queries.jsonl and qrels/ in recalibration.data.existingClaim
{{- end }}
{{- if and $values.promotion.rule (not $values.promotion.enabled) }}
recalibration.promotion.rule decides nothing while promotion is off: set recalibration.promotion.enabled=true, or leave out the rule
{{- end }}
{{- if and (include "taugate.calibrates" .) $values.promotion.enabled }}
{{- if eq (include "taugate.setting" (list . "reload_seconds") | float64) 0.0 }}
recalibration.promotion.enabled changes nothing while no replica looks at which release is current: set settings.reload_seconds=60
{{- end }}
{{- if and (include "taugate.trusts" .) (not $values.signingKey.existingSecret) }}
only signed releases are served (trustedKeys), and recalibration signs none: name a Secret with a private key in recalibration.signingKey.existingSecret, or set recalibration.promotion.enabled=false
{{- end }}
{{- end }}
{{- if and $values.workVolume.existingClaim (not .Values.releases.url) }}
recalibration.workVolume is used where releases are at a URL; with a volume, releases are made in it: leave out recalibration.workVolume.existingClaim
{{- end }}
{{- end }}
