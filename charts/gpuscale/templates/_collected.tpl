{{/* Which pods are followed beside the node agents, as arguments of the metrics API and of the scaler. */}}
{{- define "gpuscale.podScraping" -}}
- --scrape-annotated-pods={{ .scrapePods }}
{{- range .scrapeSelectedPods }}
- {{ printf "--scrape-selected-pods=%s" (include "gpuscale.selectedPods" .) | quote }}
{{- end }}
{{- if or .scrapePods .scrapeSelectedPods }}
# The preset has rules for model servers; the rules of the file come before it.
- --preset=on
{{- with .exporterPods }}
- {{ printf "--exporter-pods=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Pods that are scraped without an annotation: NAMESPACE/LABELS:SCHEME:PORT/PATH. */}}
{{- define "gpuscale.selectedPods" -}}
{{- $labels := list -}}
{{- range $key, $value := .matchLabels -}}
{{- $labels = append $labels (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- $path := .path | default "/metrics" -}}
{{ .namespace | default "*" }}/{{ join "," $labels | default "*" }}:{{ if .https }}https:{{ end }}{{ include "gpuscale.port" . }}{{ eq $path "/metrics" | ternary "" $path }}
{{- end }}

{{/* Helm reads whole numbers as others, which it prints with an exponent where they are large. */}}
{{- define "gpuscale.port" -}}
{{ if kindIs "string" .port }}{{ .port }}{{ else }}{{ int .port }}{{ end }}
{{- end }}

{{/* What lets a part go to the pods that it scrapes: (list $ "metrics-api" "gpuscale-scraped-pods"). */}}
{{- define "gpuscale.scrapedPodsPolicy" -}}
{{- $root := index . 0 -}}
---
# Annotations name any port, and policies can't select by them: it is all pods, and nothing outside.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "gpuscale.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "gpuscale.selectorLabels" (list $root (index . 1)) | nindent 6 }}
  policyTypes: [Egress]
  egress:
  {{- if $root.Values.spec.metricsApi.scrapePods }}
  - to:
    - namespaceSelector: {}
    ports:
    - protocol: TCP
  {{- else }}
  {{- range $root.Values.spec.metricsApi.scrapeSelectedPods }}
  - to:
    {{- if .namespace }}
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .namespace }}
    {{- else }}
    - namespaceSelector: {}
    {{- end }}
      {{- with .matchLabels }}
      podSelector:
        matchLabels:
          {{- toYaml . | nindent 10 }}
      {{- end }}
    ports:
    - port: {{ include "gpuscale.port" . }}
      protocol: TCP
  {{- end }}
  {{- end }}
{{- end }}
