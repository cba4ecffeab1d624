package langbot

// The classes of errors. Each is its own code on every wire.
const (
	ClassError              = "BoxError" // anything else
	ClassValidation         = "BoxValidationError"
	ClassBackendUnavailable = "BoxBackendUnavailableError"
	ClassRuntimeUnavailable = "BoxRuntimeUnavailableError"
	ClassAdmission          = "BoxAdmissionError"
	ClassReadiness          = "BoxReadinessError"
	ClassCapacity           = "BoxCapacityExceededError"
	ClassSessionConflict    = "BoxSessionConflictError"
	ClassSessionNotFound    = "BoxSessionNotFoundError"
	ClassProcessConflict    = "BoxManagedProcessConflictError"
	ClassProcessNotFound    = "BoxManagedProcessNotFoundError"
)
