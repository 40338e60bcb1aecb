-- Ends a lease with all its keys. KEYS and ARGV as for keep.
local prefix = string.sub(KEYS[3], 1, -5)
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if redis.call('GET', prefix .. 'holder:' .. key) == ARGV[1] then
    redis.call('DEL', prefix .. 'key:' .. key, prefix .. 'holder:' .. key)
    redis.call('SREM', KEYS[3], key)
  end
end
redis.call('DEL', KEYS[1], KEYS[2])
return {'gone'}
