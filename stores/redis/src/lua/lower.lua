-- From now on, writes in this namespace wait for at most ARGV[1] replicas. KEYS[1] <namespace>:store
local wait = tonumber(redis.call('HGET', KEYS[1], 'wait') or 0) or 0
if tonumber(ARGV[1]) < wait then redis.call('HSET', KEYS[1], 'wait', ARGV[1]) end
return {'ok'}
