{{/* The scrape jobs, for a Prometheus that is configured by a file. */}}
{{- define "gpuscale.scrapeConfigs" -}}
{{- $name := .Values.metadata.name -}}
{{- if .Values.spec.agent.enabled -}}
- job_name: {{ $name }}-node-agent
  honor_labels: {{ .Values.spec.prometheus.honorLabels }}
  {{- include "gpuscale.agentAccess.scrape" . | nindent 2 }}
  {{- include "gpuscale.scrapedPods" (list . "node-agent" "metrics") | nindent 2 }}
  # An agent that takes another's place goes on with its series. As series of their own, both would count
  # in sums until those of the old one are marked as ended, two scrapes later.
  - source_labels: [__meta_kubernetes_pod_node_name]
    target_label: instance
{{- if .Values.spec.agent.azureMetrics }}
- job_name: {{ $name }}-node-agent-azure
  metrics_path: /metrics/azure
  honor_labels: {{ .Values.spec.prometheus.honorLabels }}
  {{- include "gpuscale.agentAccess.scrape" . | nindent 2 }}
  {{- include "gpuscale.scrapedPods" (list . "node-agent" "metrics") | nindent 2 }}
  - source_labels: [__meta_kubernetes_pod_node_name]
    target_label: instance
{{- end }}
{{- end }}
{{- if include "gpuscale.hasApiPods" . }}
- job_name: {{ $name }}-metrics-api
  scheme: https
  # Who scrapes needs the right to get /metrics, and says who it is by its service account.
  authorization:
    credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token
  tls_config:
    {{- if eq .Values.spec.prometheus.kind "own" }}
    ca_file: /etc/prometheus/metrics-api-ca/ca.crt
    server_name: {{ $name }}-metrics-api.{{ .Release.Namespace }}.svc
    {{- else }}
    # Only a Prometheus of the installation's own has the CA at hand.
    insecure_skip_verify: true
    {{- end }}
  {{- include "gpuscale.scrapedPods" (list . "metrics-api" "https") | nindent 2 }}
{{- end }}
{{- if include "gpuscale.scalerNamespaces" . }}
- job_name: {{ $name }}-scaler
  {{- include "gpuscale.scrapedPods" (list . "scaler" "metrics") | nindent 2 }}
{{- end }}
{{- range $index, $served := include "gpuscale.servedPorts" . | fromYamlArray }}
- job_name: {{ $name }}-model-servers-{{ add 1 $index }}
  scrape_interval: {{ $.Values.spec.prometheus.scrapeInterval }}
  metrics_path: {{ $served.path }}
  kubernetes_sd_configs:
  - role: pod
    namespaces:
      names: [{{ $served.namespace | quote }}]
  relabel_configs:
  {{- range include "gpuscale.servedLabels" $served | fromYamlArray }}
  - source_labels: [{{ first . }}]
    regex: {{ last . | quote }}
    action: keep
  {{- end }}
  - source_labels: [__meta_kubernetes_namespace]
    target_label: namespace
  - source_labels: [__meta_kubernetes_pod_name]
    target_label: pod
  - source_labels: [__meta_kubernetes_pod_node_name]
    target_label: node
{{- end }}
{{- end }}

{{/* The labels of discovery that select a port of a workload, and what they have to be. */}}
{{- define "gpuscale.servedLabels" -}}
- [__meta_kubernetes_namespace, {{ .namespace | quote }}]
- [__meta_kubernetes_pod_name, {{ .pods | quote }}]
- [__meta_kubernetes_pod_container_port_number, {{ .port | toString | quote }}]
{{- end }}

{{/* The name of the Service in front of the node agents. */}}
{{- define "gpuscale.agentService" -}}
{{- .Values.spec.agent.serviceName | default (printf "%s-node-agent" .Values.metadata.name) -}}
{{- end }}

{{/* A part's pods as targets: include "gpuscale.scrapedPods" (list . "node-agent" "metrics") */}}
{{- define "gpuscale.scrapedPods" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
scrape_interval: {{ $root.Values.spec.prometheus.scrapeInterval }}
kubernetes_sd_configs:
- role: pod
  namespaces:
    names: [{{ $root.Release.Namespace | quote }}]
relabel_configs:
- source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_component]
  regex: {{ $part }}
  action: keep
- source_labels: [__meta_kubernetes_pod_label_app_kubernetes_io_instance]
  regex: {{ $root.Values.metadata.name | quote }}
  action: keep
- source_labels: [__meta_kubernetes_pod_container_port_name]
  regex: {{ last . }}
  action: keep
- source_labels: [__meta_kubernetes_pod_node_name]
  target_label: node
- target_label: service
  replacement: {{ eq $part "node-agent" | ternary (include "gpuscale.agentService" $root) (printf "%s-%s" $root.Values.metadata.name $part) }}
{{- end }}

{{/* The rules that record means: of each workload's GPUs, and of those behind a Service. */}}
{{- define "gpuscale.recordingGroups" -}}
{{- $prefix := last . -}}
{{- $hash := "[bcdfghjklmnpqrstvwxz2456789]" -}}
{{- $patterns := dict "deployment" (printf "(.+)-%s{1,10}-%s{5}" $hash $hash) "statefulset" "(.+)-[0-9]+" -}}
{{- $parts := list -}}
{{- range $kind, $pattern := $patterns -}}
{{- $named := printf `label_replace(DCGM_FI_DEV_GPU_UTIL{%spod=~"%s"}, "%s", "$1", "%spod", "%s")` $prefix $pattern $kind $prefix $pattern -}}
{{- if $prefix -}}
{{- $named = printf `label_replace(%s, "namespace", "$1", "exported_namespace", "(.+)")` $named -}}
{{- end -}}
{{- $parts = append $parts (printf "avg by (namespace, %s) (%s)" $kind $named) -}}
{{- end -}}
{{- $parts = append $parts (printf `avg by (namespace, service) (DCGM_FI_DEV_GPU_UTIL{service!="",%spod!=""})` $prefix) -}}
- name: gpuscale-means
  interval: 15s
  rules:
  # One rule, because promtool takes two of one name for a mistake; no two parts give the same labels.
  - record: DCGM_FI_DEV_GPU_UTIL_AVG
    expr: {{ join " or " $parts | quote }}
{{- end }}
