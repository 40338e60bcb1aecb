-- Makes a lease. KEYS[1] <namespace>:lease:<id>  ARGV[1] its ttl in milliseconds
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[1])
return {'alive'}
