-- Reads the records KEYS[4…]: for each its version and value, or two empty texts.
local found = {}
for i = 4, #KEYS do
  local version, value = fetch(KEYS[i])
  found[#found + 1] = version or ''
  found[#found + 1] = value or ''
end
return {'ok', generation, digits(revision), found}
