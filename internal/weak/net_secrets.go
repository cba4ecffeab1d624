package weak

// Of the gate's keeping of secrets.
const (
	NetPlaceholdersPass Weakness = "net-placeholders-pass" // placeholders go anywhere
	NetForeignPass      Weakness = "net-foreign-pass"      // credentials of the guest's own go where the gate puts a secret
	NetEchoPass         Weakness = "net-echo-pass"         // answers are not searched for values
	NetHeldPass         Weakness = "net-held-pass"         // what is held back goes on however a stream ends
	NetPartsPass        Weakness = "net-parts-pass"        // Range and TRACE go where the gate puts a secret
	NetSecretsRoam      Weakness = "net-secrets-roam"      // values go wherever their placeholder stands in Authorization
)
