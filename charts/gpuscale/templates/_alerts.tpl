{{- /* Made by `python -m gpuscale.install.chart`. */}}
{{- define "gpuscale.alertGroups" }}
groups:
- name: "gpuscale-gpus"
  rules:
  - alert: "GpuNodeAgentDown"
    expr: "up{job=\"{{ $.Values.metadata.name }}-node-agent\"} == 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "Node agent {{ "{{" }} $labels.instance }} can't be scraped"
      description: "The GPUs of its node have no values. HPAs take their pods for on target or for idle, and may not scale as they should. See whether the pod runs (kubectl get pods -l app.kubernetes.io/component=node-agent -o wide), its log, and whether a NetworkPolicy keeps Prometheus from port 9400."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpunodeagentdown"
  - alert: "GpuNodeAgentsAbsent"
    expr: "absent(up{job=\"{{ $.Values.metadata.name }}-node-agent\"}) and on () (sum(kube_node_status_allocatable{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"}) > 0 or absent(kube_node_status_allocatable))"
    for: "10m"
    labels:
      severity: "critical"
    annotations:
      summary: "Prometheus has no target in the job {{ "{{" }} $labels.job }}"
      description: "There are GPU nodes, and no GPU has a value. Without kube-state-metrics it is not known whether there are any: then the alert also fires while a pool of GPU nodes is at zero. Look for the DaemonSet's pods, and at Prometheus' page /targets: the ServiceMonitor must be selected by Prometheus (label release), or the scrape job be in its configuration."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpunodeagentsabsent"
  - alert: "GpuReadingsStale"
    expr: "time() - gpuscale_exporter_newest_reading_timestamp_seconds{job=\"{{ $.Values.metadata.name }}-node-agent\"} > 120"
    for: "2m"
    labels:
      severity: "critical"
    annotations:
      summary: "Newest GPU reading of {{ "{{" }} $labels.instance }} is {{ "{{" }} $value | humanizeDuration }} old"
      description: "The agent answers, but what it serves is old: the driver hangs, or reading fails. Run nvidia-smi on the node. If it hangs, drain and reboot the node; the agent's log names the call."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpureadingsstale"
  - alert: "GpuReadingsFailing"
    expr: "gpuscale_exporter_collect_up{job=\"{{ $.Values.metadata.name }}-node-agent\"} == 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "Node agent {{ "{{" }} $labels.instance }} can read no GPU"
      description: "The driver is not there, or refuses. No GPU of the node has values. See the agent's log for the reason. Often the driver's installation has not ended, or the agent's pod runs without NVIDIA's runtime (agent.runtimeClass, agent.deviceAccess)."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpureadingsfailing"
  - alert: "GpuUnreadable"
    expr: "gpuscale_exporter_gpu_up == 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "GPU {{ "{{" }} $labels.gpu }} ({{ "{{" }} $labels.UUID }}) of {{ "{{" }} $labels.instance }} can't be read"
      description: "One GPU is lost while others of the node answer. Pods on it fail or hang. Look for XIDs in the node's kernel log (dmesg | grep -i xid). Drain the node and reset or replace the GPU."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuunreadable"
  - alert: "GpuAttributionLost"
    expr: "gpuscale_exporter_attribution_up{job=\"{{ $.Values.metadata.name }}-node-agent\"} == 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "Node agent {{ "{{" }} $labels.instance }} does not know which pods its GPUs belong to"
      description: "GPUs have values, but without pods: no HPA gets one. The agent's log and gpuscale_exporter_unattributed tell why. Usually it can't reach the kubelet's socket: check agent.podResourcesPath and that the pod runs as root's user id."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuattributionlost"
  - alert: "GpuUnattributed"
    expr: "gpuscale_exporter_unattributed{job=\"{{ $.Values.metadata.name }}-node-agent\",reason=~\"unknown_device_id|device_allocated_twice|dra_unresolved|api_unreachable|api_forbidden\"} > 0"
    for: "15m"
    labels:
      severity: "warning"
    annotations:
      summary: "{{ "{{" }} $value }} devices or processes of {{ "{{" }} $labels.instance }} have no pod: {{ "{{" }} $labels.reason }}"
      description: "Some GPUs have values without a pod, so that scaling sees less than there is. docs/node-agent.md lists what each reason means. unknown_device_id: the device plugin names GPUs in a way that is not known; api_forbidden: the agent lacks a right."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuunattributed"
  - alert: "GpuPodWithoutReading"
{{- if $.Values.spec.prometheus.honorLabels }}
    expr: "(max by (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0) and on (namespace, pod) (kube_pod_status_phase{phase=\"Running\"} == 1)) unless on (namespace, pod) max by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{pod!=\"\"} or DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=\"\"} or gpuscale_container_gpu_utilization_percent{pod!=\"\"}) and on () (gpuscale_exporter_attribution_up == 1)"
{{- else if not $.Values.spec.prometheus.honorLabels }}
    expr: "(max by (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0) and on (namespace, pod) (kube_pod_status_phase{phase=\"Running\"} == 1)) unless on (namespace, pod) max by (namespace, pod) (label_replace(label_replace(max by (exported_namespace, exported_pod) (DCGM_FI_DEV_GPU_UTIL{exported_pod!=\"\"} or DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=\"\"} or gpuscale_container_gpu_utilization_percent{exported_pod!=\"\"}), \"namespace\", \"$1\", \"exported_namespace\", \"(.+)\"), \"pod\", \"$1\", \"exported_pod\", \"(.+)\")) and on () (gpuscale_exporter_attribution_up == 1)"
{{- end }}
    for: "10m"
    labels:
      severity: "warning"
    annotations:
      summary: "Pod {{ "{{" }} $labels.namespace }}/{{ "{{" }} $labels.pod }} runs with a GPU, and no reading names it"
      description: "The metric that an HPA would scale it by is absent. The node has no agent, labels are lost on the way (exported_pod), or its GPU is shared and only part of the pods can be told apart. gpuscale metrics-api why pods/NAMESPACE/POD DCGM_FI_DEV_GPU_UTIL names the hop at which it is lost."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpupodwithoutreading"
  - alert: "GpuIdleWhileRequested"
{{- if $.Values.spec.prometheus.honorLabels }}
    expr: "max by (namespace, pod) (max_over_time(DCGM_FI_DEV_GPU_UTIL{pod!=\"\"}[5m]) or 100 * max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=\"\",GPU_I_ID!=\"\"}[5m]) or max_over_time(gpuscale_container_gpu_utilization_percent{pod!=\"\"}[5m])) < 1"
{{- else if not $.Values.spec.prometheus.honorLabels }}
    expr: "max by (namespace, pod) (label_replace(label_replace(max by (exported_namespace, exported_pod) (max_over_time(DCGM_FI_DEV_GPU_UTIL{exported_pod!=\"\"}[5m]) or 100 * max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{exported_pod!=\"\",GPU_I_ID!=\"\"}[5m]) or max_over_time(gpuscale_container_gpu_utilization_percent{exported_pod!=\"\"}[5m])), \"namespace\", \"$1\", \"exported_namespace\", \"(.+)\"), \"pod\", \"$1\", \"exported_pod\", \"(.+)\")) < 1"
{{- end }}
    for: {{ $.Values.spec.alerts.idle | toString | toJson }}
    labels:
      severity: "warning"
    annotations:
      summary: "Pod {{ "{{" }} $labels.namespace }}/{{ "{{" }} $labels.pod }} has a GPU and does not use it"
      description: "The GPU is paid for, and other pods can't have it. Scale the workload in (minReplicas), let several pods share a GPU (time-slicing, MIG), or end what was forgotten. Look whether the pod waits for something, such as a model to load."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuidlewhilerequested"
  - alert: "GpuXidBroken"
    expr: "max by (Hostname, gpu, UUID, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS{err_code=~\"48|62|64|74|79|92|95|109|119|120|136|140|143|155|157|158|161|167|171|172\"} > 0) unless max by (Hostname, gpu, UUID, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS{err_code=~\"48|62|64|74|79|92|95|109|119|120|136|140|143|155|157|158|161|167|171|172\"} offset 1h > 0)"
    labels:
      severity: "critical"
    annotations:
      summary: "GPU {{ "{{" }} $labels.gpu }} of {{ "{{" }} $labels.Hostname }}: XID {{ "{{" }} $labels.err_code }}, {{ "{{" }} $labels.err_msg }}"
      description: "The GPU, its memory or a link failed, in the last hour. What runs on it is broken or soon will be. Cordon and drain the node, then reset the GPU (nvidia-smi --gpu-reset) or reboot. If it comes back, have the GPU replaced."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuxidbroken"
  - alert: "GpuXid"
    expr: "max by (Hostname, gpu, UUID, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS{err_code!~\"48|62|64|74|79|92|95|109|119|120|136|140|143|155|157|158|161|167|171|172\"} > 0) unless max by (Hostname, gpu, UUID, err_code, err_msg) (DCGM_FI_DEV_XID_ERRORS{err_code!~\"48|62|64|74|79|92|95|109|119|120|136|140|143|155|157|158|161|167|171|172\"} offset 1h > 0)"
    labels:
      severity: "warning"
    annotations:
      summary: "GPU {{ "{{" }} $labels.gpu }} of {{ "{{" }} $labels.Hostname }}: XID {{ "{{" }} $labels.err_code }}, {{ "{{" }} $labels.err_msg }}"
      description: "The driver reported a fault in the last hour, most often of a program: 13, 31, 43 and 45 are bad memory accesses and their aftermath. Read the log of the pod on that GPU. If different programs get it on one GPU only, treat it as broken hardware."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuxid"
  - alert: "GpuEccUncorrectable"
    expr: "(max by (Hostname, gpu, UUID) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS) - min_over_time(max by (Hostname, gpu, UUID) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS)[1h:1m])) > 0 or (max by (Hostname, gpu, UUID) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL) - min_over_time(max by (Hostname, gpu, UUID) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL)[1h:1m])) > 0"
    labels:
      severity: "critical"
    annotations:
      summary: "GPU {{ "{{" }} $labels.gpu }} of {{ "{{" }} $labels.Hostname }} had {{ "{{" }} $value }} uncorrectable memory errors in an hour"
      description: "Memory was lost or wrong: programs that used it were ended by the driver, or should be. Drain the node and reset the GPU, which puts remapped rows into effect. Have it replaced if it goes on."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpueccuncorrectable"
  - alert: "GpuRowRemapFailed"
    expr: "max by (Hostname, gpu, UUID) (DCGM_FI_DEV_ROW_REMAP_FAILURE) > 0"
    labels:
      severity: "critical"
    annotations:
      summary: "GPU {{ "{{" }} $labels.gpu }} of {{ "{{" }} $labels.Hostname }} has no spare memory rows left"
      description: "A bad row could not be replaced by a spare one. Errors will come again. Drain the node and have the GPU replaced: NVIDIA takes this for a reason."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpurowremapfailed"
- name: "gpuscale-scaling"
  rules:
  - alert: "GpuMetricsApiUnavailable"
    expr: "max by (name) (aggregator_unavailable_apiservice{name=~\"v1beta[12].(custom|external).metrics.k8s.io\"}) == 1"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "APIService {{ "{{" }} $labels.name }} is unavailable"
      description: "The API server can't reach the metrics API. HPAs keep their replica counts, whatever the load is. kubectl describe apiservice NAME tells why: no ready pod, a port that the control plane can't reach, or a caBundle that does not fit the certificate."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetricsapiunavailable"
{{- if $.Values.spec.metricsApi.enabled }}
{{- if not $.Values.spec.metricsApi.externalName }}
  - alert: "GpuMetricsApiDown"
    expr: "sum by (job) (up{job=\"{{ $.Values.metadata.name }}-metrics-api\"}) == 0 or absent(up{job=\"{{ $.Values.metadata.name }}-metrics-api\"})"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "No replica of {{ "{{" }} $labels.job }} can be scraped"
      description: "The metrics API is away, or Prometheus may not ask it for its metrics. kubectl get pods -l app.kubernetes.io/component=metrics-api, their logs, and /readyz?verbose. With 403 at Prometheus' page /targets, its service account lacks the right to get /metrics."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetricsapidown"
{{- end }}
{{- end }}
{{- if $.Values.spec.metricsApi.enabled }}
{{- if not $.Values.spec.metricsApi.externalName }}
  - alert: "GpuMetricsApiSourceFailing"
    expr: "sum by (job) (rate(gpuscale_metrics_api_source_failures_total{job=\"{{ $.Values.metadata.name }}-metrics-api\"}[5m])) > 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "{{ "{{" }} $labels.job }} gets no answers from Prometheus"
      description: "HPAs get an error instead of a value, and keep their replica counts. Check --prometheus-url, a NetworkPolicy in between, and Prometheus itself; the server's log has the error."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetricsapisourcefailing"
{{- end }}
{{- end }}
{{- if $.Values.spec.metricsApi.enabled }}
{{- if not $.Values.spec.metricsApi.externalName }}
  - alert: "GpuMetricsApiRulesRefused"
    expr: "max by (job, source) (gpuscale_metrics_api_rule_source_last_reload_successful{job=\"{{ $.Values.metadata.name }}-metrics-api\"} == 0)"
    for: "5m"
    labels:
      severity: "warning"
    annotations:
      summary: "Rules of {{ "{{" }} $labels.source }} are refused"
      description: "The last good rules are served on; what was changed since is not in effect. gpuscale lint FILE names line and fault, as the server's log does."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetricsapirulesrefused"
{{- end }}
{{- end }}
{{- if $.Values.spec.metricsApi.enabled }}
{{- if not $.Values.spec.metricsApi.externalName }}
  - alert: "GpuMetricLate"
    expr: "max by (job, metric) (gpuscale_metrics_api_hop_lag_seconds{job=\"{{ $.Values.metadata.name }}-metrics-api\",hop=\"total\"}) > 90"
    for: "10m"
    labels:
      severity: "warning"
    annotations:
      summary: "Values of {{ "{{" }} $labels.metric }} are {{ "{{" }} $value | humanizeDuration }} old when they are served"
      description: "HPAs act on a load that has passed: too late up, too late down. The dashboard Autoscaling shows the lag of each hop. Shorten the scrape interval, or let the metrics API follow the agents' streams (--source streams)."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetriclate"
{{- end }}
{{- end }}
{{- if $.Values.spec.metricsApi.enabled }}
{{- if not $.Values.spec.metricsApi.externalName }}
  - alert: "GpuMetricStale"
    expr: "sum by (job, metric) (increase(gpuscale_metrics_api_stale_values_total{job=\"{{ $.Values.metadata.name }}-metrics-api\"}[5m])) > 0"
    for: "5m"
    labels:
      severity: "critical"
    annotations:
      summary: "Values of {{ "{{" }} $labels.metric }} are left out because they are too old"
      description: "The series are there, but were measured longer ago than --value-max-age allows. HPAs get no value. Look for GpuReadingsStale and GpuNodeAgentDown first; then for clocks that differ between nodes."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpumetricstale"
{{- end }}
{{- end }}
  - alert: "GpuHpaBlind"
    expr: "(max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_condition{condition=\"ScalingActive\",status=\"false\"}) == 1) and on (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_current_replicas > 0) and on (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_spec_target_metric{metric_name=~\"(?i).*gpu.*|dcgm_.*\"} or kube_horizontalpodautoscaler_info{scaletargetref_kind=~\"Deployment|Rollout\"} and on (namespace, scaletargetref_name) label_replace(kube_pod_owner{owner_kind=\"ReplicaSet\"} and on (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0), \"scaletargetref_name\", \"$1\", \"owner_name\", \"(.+)-[^-]+\") or kube_horizontalpodautoscaler_info{scaletargetref_kind!~\"Deployment|Rollout\"} and on (namespace, scaletargetref_kind, scaletargetref_name) label_replace(label_replace(kube_pod_owner and on (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0), \"scaletargetref_name\", \"$1\", \"owner_name\", \"(.+)\"), \"scaletargetref_kind\", \"$1\", \"owner_kind\", \"(.+)\"))"
    for: "10m"
    labels:
      severity: "critical"
    annotations:
      summary: "HPA {{ "{{" }} $labels.namespace }}/{{ "{{" }} $labels.horizontalpodautoscaler }} gets no value and does not scale"
      description: "Its condition ScalingActive is False: it keeps its replica count, whatever the load is. kubectl describe hpa NAME has the reason; gpuscale metrics-api why follows the metric to the hop that gives nothing."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuhpablind"
  - alert: "GpuHpaAtMaximum"
    expr: "(max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_desired_replicas) >= max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_spec_max_replicas)) and on (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_condition{condition=\"ScalingLimited\",status=\"true\"} == 1) and on (namespace, horizontalpodautoscaler) (max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_spec_max_replicas) > max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_spec_min_replicas)) and on (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_spec_target_metric{metric_name=~\"(?i).*gpu.*|dcgm_.*\"} or kube_horizontalpodautoscaler_info{scaletargetref_kind=~\"Deployment|Rollout\"} and on (namespace, scaletargetref_name) label_replace(kube_pod_owner{owner_kind=\"ReplicaSet\"} and on (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0), \"scaletargetref_name\", \"$1\", \"owner_name\", \"(.+)-[^-]+\") or kube_horizontalpodautoscaler_info{scaletargetref_kind!~\"Deployment|Rollout\"} and on (namespace, scaletargetref_kind, scaletargetref_name) label_replace(label_replace(kube_pod_owner and on (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0), \"scaletargetref_name\", \"$1\", \"owner_name\", \"(.+)\"), \"scaletargetref_kind\", \"$1\", \"owner_kind\", \"(.+)\"))"
    for: "15m"
    labels:
      severity: "warning"
    annotations:
      summary: "HPA {{ "{{" }} $labels.namespace }}/{{ "{{" }} $labels.horizontalpodautoscaler }} wants more than its {{ "{{" }} $value }} replicas"
      description: "The load is above its target, and the HPA may not add pods: requests wait or fail. Raise maxReplicas, and with it the node pool's limit and the GPU quota; or raise the target if latency is still good."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpuhpaatmaximum"
  - alert: "GpuPodsPending"
    expr: "(max by (namespace, pod) (kube_pod_status_scheduled{condition=\"false\"}) == 1) and on (namespace, pod) (kube_pod_container_resource_requests{resource=~\"nvidia_com_(gpu|mig_).*|amd_com_gpu\"} > 0)"
    for: {{ $.Values.spec.alerts.nodeStart | toString | toJson }}
    labels:
      severity: "warning"
    annotations:
      summary: "Pod {{ "{{" }} $labels.namespace }}/{{ "{{" }} $labels.pod }} waits for a GPU for more than {{ $.Values.spec.alerts.nodeStart }}"
      description: "A new node should have come by now (alerts.nodeStart). kubectl describe pod has the scheduler's and the node autoscaler's words: no quota, the pool's maximum, no machines of that type in the zone, or a taint that the pod does not tolerate."
      runbook_url: "{{ $.Values.spec.alerts.docsUrl }}#gpupodspending"
{{- end }}
