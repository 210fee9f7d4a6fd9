// What ajv, the JSON Schema validator of the Node world, has to say about documents.

import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

export function complaints(schema, documents) {
  const ajv = new Ajv2020({ allErrors: true });
  addFormats.default(ajv);
  const validate = ajv.compile(schema);
  return documents.map((document) =>
    validate(document) ? [] : validate.errors.map((error) => `${error.instancePath} ${error.message}`),
  );
}
