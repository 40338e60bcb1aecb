-- Removes a registered key if it is under this lease. KEYS and ARGV as for put.
if redis.call('GET', KEYS[5]) == ARGV[1] then
  redis.call('DEL', KEYS[4], KEYS[5])
  redis.call('SREM', KEYS[3], ARGV[2])
end
redis.call('SREM', KEYS[2], ARGV[2])
return {'alive'}
