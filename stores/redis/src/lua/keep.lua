-- Renews a lease and all that is under it. What was deleted by hand, or evicted, is put again by its owner.
-- KEYS[1] <namespace>:lease:<id>  KEYS[2] <namespace>:leased:<id>  KEYS[3] <namespace>:keys  ARGV[1] <id>
local ttl = redis.call('GET', KEYS[1])
if not ttl then return {'gone'} end
local prefix = string.sub(KEYS[3], 1, -5)
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if redis.call('GET', prefix .. 'holder:' .. key) == ARGV[1] then
    redis.call('PEXPIRE', prefix .. 'holder:' .. key, ttl)
    redis.call('PEXPIRE', prefix .. 'key:' .. key, ttl)
  else
    redis.call('SREM', KEYS[2], key)
  end
end
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl)
return {'alive'}
