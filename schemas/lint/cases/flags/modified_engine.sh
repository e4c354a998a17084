# Several flags that no version has, and that resemble none, are those of a modified engine.
# expect: nothing
vllm serve target --enable-tiered-moe --tiered-moe-backend uva --tiered-moe-numa-strict --mla-cache-tier hbm
